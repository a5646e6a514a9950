#include "commands/plan/plan_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <iterator>
#include <vector>

namespace fa::tool {
namespace {

// Sizes are in pixels. A screen has room for six panels of 300 pixels, and a legend for 32 workers.
constexpr double kPanel = 300, kMinPanel = 96;
constexpr double kGapX = 74, kGapY = 78, kMargin = 24, kHeader = 108, kLegend = 190;
constexpr int64_t kPanels = 6, kColumns = 3;
constexpr size_t kLegendRows = 32;
constexpr double kMinGridStep = 4;  // closer lines would hide the areas between them

constexpr const char* kStyle =
    "text{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#24303c;font-size:11px}"
    ".title{font-size:17px;font-weight:600}.sub{font-size:12px;fill:#5b6874}.head{font-size:12px;font-weight:600}"
    ".area{fill:#fbfbfa;stroke:#9aa5b0;stroke-width:1}.tile{stroke:#ffffff;stroke-width:.6}"
    ".grid{stroke:#ffffff;stroke-opacity:.35;stroke-width:.6}.tick{stroke:#9aa5b0;stroke-width:1}";

// The palette of Okabe and Ito, which colour-blind people can tell apart, with a darker yellow, and grey instead of
// black.
constexpr std::array<const char*, 8> kPalette = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                                 "#56b4e9", "#d55e00", "#b8a900", "#7f8c99"};

std::string WorkerColour(int worker, int workers) {
  if (workers <= static_cast<int>(kPalette.size())) return kPalette[static_cast<size_t>(worker) % kPalette.size()];
  // If there are many workers, neighbours differ in hue by a golden angle, and lightness has three steps. Colours are
  // written as numbers because not every viewer knows hsl().
  const double hue = std::fmod(worker * 137.508, 360.0), lightness = 0.44 + 0.11 * (worker % 3);
  constexpr double kSaturation = 0.58;
  const auto channel = [&](double shift) {
    const double k = std::fmod(shift + hue / 30, 12);
    const double distance = std::clamp(std::min(k - 3, 9 - k), -1.0, 1.0);
    return std::lround(255 * (lightness - kSaturation * std::min(lightness, 1 - lightness) * distance));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(0), channel(8), channel(4));
}

std::string Escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

std::string Capital(std::string word) {
  word[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(word[0])));
  return word;
}

/// Returns ticks such as 0, 1024, 2048: at most five at a round distance, and the end.
std::vector<int64_t> Ticks(int64_t size) {
  int64_t step = 1;
  while (size / step > 4) step *= 2;
  std::vector<int64_t> ticks;
  for (int64_t at = 0; at < size; at += step) {
    if (at == 0 || size - at >= step / 2) ticks.push_back(at);
  }
  ticks.push_back(size);
  return ticks;
}

/// Draws one document from top to bottom. If PlanInfo::load is empty, it is unknown which worker runs a tile, and
/// all tiles have one colour.
class Drawing {
 public:
  Drawing(const PlanInfo& info, const PlanPicture& picture) : info_(info), picture_(picture) {
    const auto longest = static_cast<double>(std::max<int64_t>({picture.sq, picture.sk, 1}));
    panel_width_ = std::max(kMinPanel, kPanel * static_cast<double>(picture.sk) / longest);
    panel_height_ = std::max(kMinPanel, kPanel * static_cast<double>(picture.sq) / longest);
    panels_ = std::min(kPanels, picture.batch * picture.heads);
  }

  std::string Draw() {
    const int64_t columns = std::clamp<int64_t>(panels_, 1, kColumns);
    const int64_t rows = (panels_ + kColumns - 1) / kColumns;
    const double legend_rows = static_cast<double>(std::min(info_.load.size(), kLegendRows)) + 2;
    const double plots = static_cast<double>(columns) * (panel_width_ + kGapX);
    const double height = kHeader + std::max(static_cast<double>(rows) * (panel_height_ + kGapY), 18 * legend_rows);
    const double width = std::max(kMargin + plots + kLegend, 760.0);
    Add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\">\n<style>{2}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        width, height, kStyle);
    Header();
    for (int64_t panel = 0; panel < panels_; ++panel) {
      const double x = kMargin + 40 + static_cast<double>(panel % kColumns) * (panel_width_ + kGapX);
      const double y = kHeader + 24 + static_cast<double>(panel / kColumns) * (panel_height_ + kGapY);
      Panel(panel / picture_.heads, panel % picture_.heads, x, y);
    }
    Legend(kMargin + plots + 20, kHeader);
    Add("</svg>\n");
    return std::move(svg_);
  }

 private:
  template <typename... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
  }

  void Text(double x, double y, const char* anchor, const char* style, const std::string& text) {
    Add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", x, y, anchor, style,
        Escape(text));
  }

  void Header() {
    Text(kMargin, 32, "start", "title", picture_.title);
    if (!picture_.facts.empty()) {
      for (size_t i = 0; i < picture_.facts.size(); ++i) {
        Text(kMargin, 54 + 18 * static_cast<double>(i), "start", "sub", picture_.facts[i]);
      }
      return;
    }
    std::string kernels;
    for (const std::string& kernel : info_.kernels) kernels += (kernels.empty() ? "" : " + ") + kernel;
    Text(kMargin, 54, "start", "sub",
         fmt::format("tiles of {} rows, blocks of {} keys; {} tasks, {} workers; {}", info_.block_q, info_.block_k,
                     info_.tasks, info_.workers, kernels));
    if (info_.load.empty()) {
      Text(kMargin, 72, "start", "sub", fmt::format("{:.3g} GFLOP", info_.flops * 1e-9));
      return;
    }
    const double kept = info_.flops_full > 0 ? 100 * info_.flops / info_.flops_full : 0;
    const double useful = info_.flops_visited > 0 ? 100 * info_.flops / info_.flops_visited : 100;
    Text(kMargin, 72, "start", "sub",
         fmt::format("{:.3g} GFLOP kept, {:.1f} % of the full area; {:.1f} % of the visited work is kept; predicted "
                     "efficiency {:.1f} %",
                     info_.flops * 1e-9, kept, useful, 100 * info_.efficiency));
  }

  void Panel(int64_t batch, int64_t head, double x, double y) {
    Text(x + panel_width_ / 2, y - 30, "middle", "head", fmt::format("batch {}, head {}", batch, head));
    Add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"area\"/>\n", x, y, panel_width_,
        panel_height_);
    for (const PlanTile& tile : info_.tiles) {
      if (tile.batch == batch && tile.head_begin <= head && head < tile.head_end) Tile(tile, x, y);
    }
    Axes(x, y);
  }

  [[nodiscard]] double PerKey() const { return panel_width_ / static_cast<double>(std::max<int64_t>(picture_.sk, 1)); }
  [[nodiscard]] double PerRow() const { return panel_height_ / static_cast<double>(std::max<int64_t>(picture_.sq, 1)); }

  void Tile(const PlanTile& tile, double x, double y) {
    if (tile.key_end <= tile.key_begin) return;  // rows without keys have no area in the picture
    const double left = x + static_cast<double>(tile.key_begin) * PerKey();
    const double right = x + static_cast<double>(tile.key_end) * PerKey();
    const double top = y + static_cast<double>(tile.row_begin) * PerRow();
    const double bottom = y + static_cast<double>(tile.row_end) * PerRow();
    Add("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"{}><title>rows "
        "{}-{}, keys {}-{}, heads {}-{}, {} {}, cost {}</title></rect>\n",
        left, top, right - left, bottom - top, WorkerColour(tile.worker, info_.workers),
        bottom - top < kMinGridStep ? "" : " class=\"tile\"", tile.row_begin, tile.row_end, tile.key_begin,
        tile.key_end, tile.head_begin, tile.head_end, picture_.worker, tile.worker, tile.cost);
    if (info_.block_k <= 0 || static_cast<double>(info_.block_k) * PerKey() < kMinGridStep) return;
    for (int64_t key = (tile.key_begin / info_.block_k + 1) * info_.block_k; key < tile.key_end; key += info_.block_k) {
      const double at = x + static_cast<double>(key) * PerKey();
      Add("<line x1=\"{0:.2f}\" y1=\"{1:.2f}\" x2=\"{0:.2f}\" y2=\"{2:.2f}\" class=\"grid\"/>\n", at, top, bottom);
    }
  }

  void Axes(double x, double y) {
    for (const int64_t key : Ticks(picture_.sk)) {
      const double at = x + static_cast<double>(key) * PerKey();
      Add("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" class=\"tick\"/>\n", at, y - 4, y);
      Text(at, y - 8, "middle", "sub", std::to_string(key));
    }
    for (const int64_t row : Ticks(picture_.sq)) {
      const double at = y + static_cast<double>(row) * PerRow();
      Add("<line x1=\"{1:.1f}\" y1=\"{0:.1f}\" x2=\"{2:.1f}\" y2=\"{0:.1f}\" class=\"tick\"/>\n", at, x - 4, x);
      Text(x - 7, at + 4, "end", "sub", std::to_string(row));
    }
    Text(x + panel_width_, y + panel_height_ + 15, "end", "sub",
         fmt::format("{} j \u2192   rows i \u2193", picture_.keys));
  }

  void Legend(double x, double y) {
    Text(x, y + 4, "start", "head",
         info_.load.empty() ? "Any worker, in order" : Capital(picture_.worker) + ", predicted load");
    for (size_t worker = 0; worker < std::min(info_.load.size(), kLegendRows); ++worker) {
      const double top = y + 14 + 18 * static_cast<double>(worker);
      const std::string colour = WorkerColour(static_cast<int>(worker), info_.workers);
      Add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{}\"/>\n", x, top, colour);
      Text(x + 18, top + 10, "start", "sub", std::to_string(worker));
      Add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"6\" rx=\"3\" fill=\"{}\" fill-opacity=\".55\"/>\n",
          x + 44, top + 3, 62 * std::clamp(info_.load[worker], 0.0, 1.0), colour);
      Text(x + 154, top + 10, "end", "sub", fmt::format("{:.0f} %", 100 * info_.load[worker]));
    }
    const int64_t heads = picture_.batch * picture_.heads;
    const double below = y + 30 + 18 * static_cast<double>(std::min(info_.load.size(), kLegendRows));
    if (info_.load.size() > kLegendRows) {
      Text(x, below, "start", "sub", fmt::format("and {} more {}s", info_.load.size() - kLegendRows, picture_.worker));
    }
    if (heads > panels_) Text(x, below + 18, "start", "sub", fmt::format("first {} of {} heads", panels_, heads));
  }

  const PlanInfo& info_;
  const PlanPicture& picture_;
  double panel_width_ = 0, panel_height_ = 0;
  int64_t panels_ = 0;
  std::string svg_;
};

}  // namespace

std::string DrawPlan(const PlanInfo& info, const PlanPicture& picture) { return Drawing(info, picture).Draw(); }

}  // namespace fa::tool
