#ifndef FA_OPS_PARALLEL_ROWS_H_
#define FA_OPS_PARALLEL_ROWS_H_

#include <cstdint>

#include "fa/context.h"
#include "fa/status.h"

namespace fa::ops {

/// A callable over a range of rows, [begin, end). Non-owning.
class RowsFunction {
 public:
  template <typename Callable>
  explicit RowsFunction(Callable& callable)
      : self_(&callable),
        call_([](void* self, int64_t begin, int64_t end) { (*static_cast<Callable*>(self))(begin, end); }) {}
  void operator()(int64_t begin, int64_t end) const { call_(self_, begin, end); }

 private:
  void* self_;
  void (*call_)(void*, int64_t, int64_t);
};

/// Covers [0, rows) with calls of about `chunk` rows each, whose boundaries are multiples of `chunk`. It uses the
/// workers of the context, or with null those of the default context. A single chunk runs on the caller. Rows must not
/// depend on each other.
[[nodiscard]] Status ParallelRows(Context* context, int64_t rows, int64_t chunk, RowsFunction function);

}  // namespace fa::ops

#endif  // FA_OPS_PARALLEL_ROWS_H_
