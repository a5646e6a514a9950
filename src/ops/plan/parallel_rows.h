#ifndef FA_OPS_PARALLEL_ROWS_H_
#define FA_OPS_PARALLEL_ROWS_H_

#include <cstdint>

#include "fa/context.h"
#include "fa/status.h"

namespace fa::ops {

/// A reference to a function that is called with a range of rows [begin, end). The function must outlive the reference.
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

/// Covers [0, rows) with calls of about `chunk` rows each, whose boundaries are multiples of `chunk`. The calls run on
/// the workers of `context`, or of the default context if it is null. A single chunk runs on the calling thread. Rows
/// must not depend on each other.
[[nodiscard]] Status ParallelRows(Context* context, int64_t rows, int64_t chunk, RowsFunction function);

}  // namespace fa::ops

#endif  // FA_OPS_PARALLEL_ROWS_H_
