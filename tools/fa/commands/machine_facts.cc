#include "commands/machine_facts.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <CLI/Version.hpp>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "commands/system_files.h"

namespace fa::tool {
namespace {

namespace fs = std::filesystem;

/// Returns the CPU's name as the library reports it, because /proc/cpuinfo has no name on aarch64.
std::string CpuName(const Context& context) {
  constexpr std::string_view kBegin = "cpu: ";
  const std::string text = context.Describe();
  const std::string line = text.substr(0, text.find('\n'));
  return line.starts_with(kBegin) ? line.substr(kBegin.size()) : "";
}

/// Returns the number of bytes that a text such as "48K", "2048K" or "32M" means.
int64_t BytesOfSize(const std::string& size) {
  const int64_t number = std::atoll(size.c_str());
  if (size.ends_with('K')) return number << 10;
  return size.ends_with('M') ? number << 20 : number;
}

std::vector<CacheFacts> DataCaches() {
  std::vector<CacheFacts> caches;
  const fs::path folder = "/sys/devices/system/cpu/cpu0/cache";
  for (int index = 0; fs::exists(folder / fmt::format("index{}", index)); ++index) {
    const fs::path cache = folder / fmt::format("index{}", index);
    if (FirstLine(cache / "type") == "Instruction") continue;
    caches.push_back({.level = std::atoi(FirstLine(cache / "level").c_str()),
                      .bytes = BytesOfSize(FirstLine(cache / "size")),
                      .shared_by = CountOfList(FirstLine(cache / "shared_cpu_list"))});
  }
  return caches;
}

/// Returns a function of a library that libfa loads, looked up by name, because the tool itself does not link that
/// library.
template <typename Function>
Function* Loaded(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

std::string TbbVersion() {
  auto* const version = Loaded<const char*()>("TBB_runtime_version");
  return version != nullptr ? version() : "not loaded";
}

std::string HwlocVersion() {
  auto* const version = Loaded<unsigned()>("hwloc_get_api_version");
  if (version == nullptr) return "not loaded";
  return fmt::format("{}.{}.{}", version() >> 16, version() >> 8 & 255, version() & 255);
}

std::string OpenBlasVersion() {
  auto* const configuration = Loaded<char*()>("openblas_get_config");
  return configuration != nullptr ? configuration() : "not loaded";
}

}  // namespace

nlohmann::ordered_json ToJson(const std::vector<CacheFacts>& caches) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CacheFacts& cache : caches) {
    list.push_back({{"level", cache.level}, {"bytes", cache.bytes}, {"shared_by", cache.shared_by}});
  }
  return list;
}

MachineFacts ReadMachineFacts(const Context& context) {
  MachineFacts facts{.cpu = CpuName(context), .data_caches = DataCaches(), .numa_nodes = 1};
  const std::string nodes = FirstLine("/sys/devices/system/node/online");
  if (!nodes.empty()) facts.numa_nodes = CountOfList(nodes);
  return facts;
}

std::vector<std::pair<std::string, std::string>> DependencyVersions() {
  return {{"oneTBB", TbbVersion()},
          {"hwloc", HwlocVersion()},
          {"OpenBLAS", OpenBlasVersion()},
          {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
          {"CLI11", CLI11_VERSION},
          {"nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                                        NLOHMANN_JSON_VERSION_PATCH)}};
}

}  // namespace fa::tool
