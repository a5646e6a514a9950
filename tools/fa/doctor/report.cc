#include "doctor/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>

#include "doctor/terminal.h"
#include "fa/version.h"

namespace fa::tool {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json ToJson(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) list.push_back({{"about", finding.about}, {"text", finding.text}});
  return list;
}

Json ToJson(const std::vector<SelfTestResult>& results) {
  Json list = Json::array();
  for (const SelfTestResult& result : results) {
    const bool ok = result.wrong.empty();
    list.push_back({{"isa", result.isa},
                    {"op", result.op},
                    {"dtype", result.dtype},
                    {"kernel", result.kernel},
                    {"wrong", ok ? Json(nullptr) : Json(result.wrong)},
                    {"error", ok ? Json(result.error) : Json(nullptr)},
                    {"gflops", ok ? Json(result.gflops) : Json(nullptr)},
                    {"peak", ok ? Json(result.peak) : Json(nullptr)},
                    {"peak_gflops", ok ? Json(result.peak_gflops) : Json(nullptr)},
                    {"fraction", OrNull(result.fraction)}});
  }
  return list;
}

std::string SizeText(int64_t bytes) {
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
  if (bytes >= int64_t{1} << 20) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} KiB", bytes >> 10);
}

void AddLine(std::string& page, const char* name, const std::string& text) {
  fmt::format_to(std::back_inserter(page), "  {:<11}{}\n", name, text);
}

std::string MachineText(const DoctorReport& report) {
  const SystemFacts& system = report.system;
  std::string page;
  AddLine(page, "cpu", report.machine.cpu.empty() ? "not reported" : report.machine.cpu);
  AddLine(page, "level", fmt::format("{} (highest here: {})", Name(report.context.isa()), Name(DetectIsa())));
  std::vector<std::string> caches;
  for (const CacheFacts& cache : report.machine.data_caches) {
    caches.push_back(fmt::format("L{} {}{}", cache.level, SizeText(cache.bytes),
                                 cache.shared_by > 1 ? fmt::format(" for {} threads", cache.shared_by) : ""));
  }
  AddLine(page, "caches", caches.empty() ? "not reported" : fmt::format("{}", fmt::join(caches, ", ")));
  AddLine(page, "numa",
          fmt::format("{} {}, balancing {}", system.numa_nodes, system.numa_nodes == 1 ? "node" : "nodes",
                      system.numa_balancing ? "on" : "off"));
  AddLine(page, "cpus",
          fmt::format("{} of {} hardware threads allowed; control groups: {}", system.allowed_cpus, system.online_cpus,
                      system.cpu_limit ? fmt::format("{:g}", *system.cpu_limit) : "no limit"));
  AddLine(page, "memory",
          fmt::format("{}, {} available; control groups: {}", SizeText(system.memory_bytes),
                      SizeText(system.available_bytes),
                      system.memory_limit_bytes ? SizeText(*system.memory_limit_bytes) : "no limit"));
  AddLine(page, "huge pages",
          fmt::format("transparent: {}; reserved: {} of {}",
                      system.transparent_huge_pages.empty() ? "not reported" : system.transparent_huge_pages,
                      system.reserved_huge_pages, SizeText(system.huge_page_bytes)));
  AddLine(page, "governor",
          system.governors.empty() ? "not reported" : fmt::format("{}", fmt::join(system.governors, ", ")));
  AddLine(page, "threads", fmt::format("{}", report.context.threads()));
  return page;
}

std::string SelfTestText(const std::vector<SelfTestResult>& results) {
  std::string page =
      fmt::format("  {:<13}{:<10}{:<7}{:>9}{:>11}{:>10}\n", "level", "operator", "type", "error", "GFLOP/s", "of peak");
  for (const SelfTestResult& result : results) {
    fmt::format_to(std::back_inserter(page), "  {:<13}{:<10}{:<7}", result.isa, result.op, result.dtype);
    if (!result.wrong.empty()) {
      page += "    " + Painted(Colour::kRed, "wrong") + "\n";
      continue;
    }
    fmt::format_to(std::back_inserter(page), "{:>9.4f}{:>11.1f}{:>10}\n", result.error, result.gflops,
                   result.fraction ? fmt::format("{:.1f} %", 100 * *result.fraction) : "-");
  }
  return page + "  error: the largest, as a fraction of what rounding explains\n" +
         "  peak: of the level's unit for the type, on as many threads, measured around the same call; -: no quiet "
         "round\n";
}

std::string FindingsText(const DoctorReport& report) {
  std::string page;
  const auto add = [&page](Colour colour, const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) page += "  " + Painted(colour, finding.about) + ": " + finding.text + "\n";
  };
  add(Colour::kRed, report.wrong);
  add(Colour::kYellow, report.measurement);
  add(Colour::kYellow, report.variables);
  add(Colour::kYellow, report.settings);
  return page.empty() ? "  " + Painted(Colour::kGreen, "none") + "\n" : page;
}

}  // namespace

Json ToJson(const DoctorReport& report) {
  const SystemFacts& system = report.system;
  return {{"version", FA_VERSION_STRING},
          {"cpu", report.machine.cpu},
          {"isa", Name(report.context.isa())},
          {"isa_detected", Name(DetectIsa())},
          {"isa_note", report.context.isa_note()},
          {"caches", ToJson(report.machine.data_caches)},
          {"numa_nodes", system.numa_nodes},
          {"numa_balancing", system.numa_balancing},
          {"threads", report.context.threads()},
          {"cpus",
           {{"online", system.online_cpus},
            {"allowed", system.allowed_cpus},
            {"control_group_limit", OrNull(system.cpu_limit)}}},
          {"memory",
           {{"bytes", system.memory_bytes},
            {"available_bytes", system.available_bytes},
            {"control_group_limit_bytes", OrNull(system.memory_limit_bytes)}}},
          {"huge_pages",
           {{"transparent", system.transparent_huge_pages},
            {"reserved", system.reserved_huge_pages},
            {"page_bytes", system.huge_page_bytes}}},
          {"governors", system.governors},
          {"self_test", ToJson(report.self_test)},
          {"measurement", ToJson(report.measurement)},
          {"variables", ToJson(report.variables)},
          {"settings", ToJson(report.settings)},
          {"ok", report.wrong.empty()}};
}

std::string ToText(const DoctorReport& report) {
  return fmt::format("fa {}\n\nmachine\n{}\nself-test\n{}\nfindings\n{}", FA_VERSION_STRING, MachineText(report),
                     SelfTestText(report.self_test), FindingsText(report));
}

}  // namespace fa::tool
