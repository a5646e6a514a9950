// Makes search work on pages that are opened from disk. Browsers start no Worker for such pages, so the Worker's script
// runs in a hidden frame. The theme uses this frame as it would use a Worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      this.scope = frame.contentWindow;
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = this.scope.document.createElement("script");
      script.src = address;
      this.loaded = new Promise((resolve) => (script.onload = resolve));
      this.scope.document.head.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
