#include "peers/worker.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "flags/flag_values.h"
#include "npy/npy_file.h"
#include "peak/read_bandwidth.h"

namespace fa::peers {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

/// Returns the seconds per call of each sample. Samples take about `seconds` in all, and there is at least one.
std::vector<double> TimeCalls(Peer& peer, double seconds) {
  // The shortest duration of a sample. Reading the clock takes some 25 ns, which is much less.
  constexpr double kMinSampleSeconds = 20e-6;
  std::vector<double> samples;
  int64_t calls = 1;
  double spent = 0;
  do {
    const Clock::time_point begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) peer.Call();
    const double sample = std::chrono::duration<double>(Clock::now() - begin).count();
    spent += sample;
    if (sample < kMinSampleSeconds) {
      calls *= 2;
    } else {
      samples.push_back(sample / static_cast<double>(calls));
    }
  } while (samples.empty() || spent < seconds);
  return samples;
}

json Reply(Peer& peer, const json& request) {
  const std::string what = request.at("do");
  if (what == "about") return peer.About();
  if (what == "prepare") {
    peer.Prepare(PeerCase(request));
    if (const std::string note = peer.Note(); !note.empty()) return {{"ok", true}, {"note", note}};
  } else if (what == "check") {
    peer.Call();
    peer.SaveResults();
  } else if (what == "time") {
    return {{"seconds", TimeCalls(peer, request.at("seconds"))}};
  } else if (what == "read") {
    bench::ReadRate rate(request.at("threads"), peer.Memory());
    return {{"gbytes", rate.Measure(request.at("seconds")) * 1e-9}};
  } else if (what == "release") {
    peer.Release();
  } else {
    return peer.Answer(request);
  }
  return {{"ok", true}};
}

}  // namespace

PeerCase::PeerCase(const json& request)
    : backward(request.at("operation") == "backward"),
      batch(request.at("batch")),
      heads(request.at("heads")),
      heads_kv(request.at("heads_kv")),
      sq(request.at("sq")),
      sk(request.at("sk")),
      d(request.at("d")),
      dtype(tool::ParseFloatType(request.at("dtype"))),
      mask(request.at("mask")),
      threads(request.at("threads")),
      folder(request.at("folder")) {}

tool::Tensor PeerCase::Load(const char* name) const {
  return tool::LoadActivations(name, folder + "/" + name + ".npy", dtype);
}

void PeerCase::Save(const char* name, const tool::Tensor& tensor) const {
  npy::Save(folder + "/" + name + ".npy", tensor.array);
}

std::span<const std::byte> BytesOf(const tool::Tensor& tensor) {
  return {tensor.array.bytes(), tensor.array.size_bytes()};
}

json Peer::Answer(const json& request) { throw std::runtime_error("unknown request " + request.dump()); }

int Serve(Peer& peer) {
  for (std::string line; std::getline(std::cin, line);) {
    json answer;
    try {
      answer = Reply(peer, json::parse(line));
    } catch (const Unsupported& reason) {
      answer = {{"unsupported", reason.what()}};
    } catch (const std::exception& error) {
      answer = {{"error", error.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}

}  // namespace fa::peers
