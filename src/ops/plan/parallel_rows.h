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

/// Covers [0, rows) with calls of about `chunk` rows each (boundaries are multiples of it), on the context's workers
/// (null: those of the default context); one chunk runs on the caller. For rows that do not depend on one another.
[[nodiscard]] Status ParallelRows(Context* context, int64_t rows, int64_t chunk, RowsFunction function);

}  // namespace fa::ops

#endif  // FA_OPS_PARALLEL_ROWS_H_
