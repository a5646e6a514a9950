#include "ops/bind/check_pages.h"

#include <string>

#include "ops/bind/argument_error.h"

namespace fa::ops {

Status CheckPages(const layout::BlockTable& table, int64_t b, tiling::Interval used, const char* name,
                  const char* pages) {
  const int32_t* row = table.entries + b * table.row;
  for (int64_t page = used.begin; page < used.end; ++page) {
    if (row[page] >= 0 && row[page] < table.pages) continue;
    return Status::InvalidArgument(Arg(name, {}, At(b) + At(page)).Is(std::to_string(row[page])) + ", want 0.." +
                                   std::to_string(table.pages - 1) + " (" + Arg(pages, ".shape", At(0)) + ")");
  }
  return Status::Ok();
}

}  // namespace fa::ops
