#ifndef FA_TOOLS_FA_COMMANDS_MACHINE_FACTS_H_
#define FA_TOOLS_FA_COMMANDS_MACHINE_FACTS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fa/context.h"

namespace fa::tool {

/// A cache of the first core.
struct CacheFacts {
  int level = 0;
  int64_t bytes = 0;
  int64_t shared_by = 0;  ///< number of hardware threads that share the cache
};

[[nodiscard]] nlohmann::ordered_json ToJson(const std::vector<CacheFacts>& caches);

/// What the operating system says about this machine. A member is empty or 0 if the system does not say it.
struct MachineFacts {
  std::string cpu;
  std::vector<CacheFacts> data_caches;
  int64_t numa_nodes = 1;
};
[[nodiscard]] MachineFacts ReadMachineFacts(const Context& context);

/// Returns names and versions of the libraries in this process. Libraries that libfa loads are asked when the tool
/// runs. For other libraries, the tool was built with the versions that are returned.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> DependencyVersions();

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_MACHINE_FACTS_H_
