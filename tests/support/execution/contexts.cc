#include "support/execution/contexts.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "support/sanitizer.h"

namespace fa::test {

std::vector<Isa> IsaLevels() {
  std::vector<Isa> levels;
  for (const Isa isa : AllIsas()) {
    if (Sanitized() && isa == Isa::kAvx512Vnni && Includes(DetectIsa(), Isa::kAvx512Bf16)) continue;
    if (Includes(DetectIsa(), isa)) levels.push_back(isa);
  }
  return levels;
}

Context* ContextOf(Isa isa, int threads) {
  static std::mutex mutex;
  static std::map<std::pair<Isa, int>, std::unique_ptr<Context>> contexts;
  const std::lock_guard lock(mutex);
  auto& context = contexts[{isa, threads}];
  if (context == nullptr) {
    ContextOptions options;
    options.isa = isa;
    options.threads = threads;
    auto made = Context::Create(options);
    if (!made.ok()) throw std::runtime_error(made.status().message());
    context = std::move(*made);
  }
  return context.get();
}

std::string IsaName(Isa isa) { return Name(isa); }

int FromEnvironment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

int RandomCases(int usual) { return FromEnvironment("FA_TEST_CASES", Sanitized() ? usual / 5 : usual); }

}  // namespace fa::test
