#ifndef FA_TOOLS_FA_COMMANDS_MACHINE_FACTS_H_
#define FA_TOOLS_FA_COMMANDS_MACHINE_FACTS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fa/context.h"

namespace fa::tool {

/// One cache of the first core.
struct CacheFacts {
  int level = 0;
  int64_t bytes = 0;
  int64_t shared_by = 0;  ///< hardware threads that share the cache
};

[[nodiscard]] nlohmann::ordered_json ToJson(const std::vector<CacheFacts>& caches);

/// Facts about this machine that the operating system gives. A fact that the system does not give is empty.
struct MachineFacts {
  std::string cpu;
  std::vector<CacheFacts> data_caches;
  int64_t numa_nodes = 1;
};
[[nodiscard]] MachineFacts ReadMachineFacts(const Context& context);

/// Returns names and versions of the libraries of this process. A library that is loaded with libfa is asked at run
/// time. The versions of the others are known when the tool is built.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> DependencyVersions();

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_MACHINE_FACTS_H_
