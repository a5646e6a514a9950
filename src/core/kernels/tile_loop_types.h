#ifndef FA_CORE_KERNELS_TILE_LOOP_TYPES_H_
#define FA_CORE_KERNELS_TILE_LOOP_TYPES_H_

#include <cstdint>

/// The types of the loops of the tile unit. kernel_types.h explains strips and panels.
namespace fa::core::kernels {

struct FetchList;

/// A strip of TileLoops::attend. It has 32 lanes.
struct TileAttendStrip {
  const float* panel = nullptr;            ///< the queries as pack_queries packs them
  int64_t begin = 0, end = 0;              ///< the strip's chunks of 32 keys
  int64_t plain_begin = 0, plain_end = 0;  ///< chunks in which no pair is masked and no pass changes a score
  float* o = nullptr;                      ///< the output state [dv][32]; written if the strip has chunks
  /// The reference that is subtracted from the row's scores, in place of the row's largest score. It is the largest
  /// score of the first chunk in which the row sees a key, or kMaskedScore if there is no such chunk.
  float* row_max = nullptr;
  float* row_sum = nullptr;  ///< the sum of the probabilities after they have been rounded to bf16
  float* shift = nullptr;    ///< scratch memory of 32 floats
  // With statistics: the row's largest score, and the sum of its probabilities before they are rounded. Otherwise both
  // are null.
  float *largest = nullptr, *whole_sum = nullptr;
  bool settled = false;  ///< whether every lane has its reference in row_max
};

/// The arguments of TileLoops::attend. d and dv are multiples of kColumns.
struct TileAttendArgs {
  static constexpr int64_t kColumns = 32, kKeys = 32;  ///< kKeys: keys per chunk
  /// The bytes of a chunk's scores, and the bytes of a chunk's probabilities.
  static constexpr int64_t kScoreBytes = 4096, kStepBytes = 2048;
  static constexpr int64_t kMostRing = 4, kMostChunks = 8;
  static constexpr int64_t kMemoryBytes = kMostRing * kScoreBytes + 2 * kMostChunks * kStepBytes;

  const char* k = nullptr;   ///< all d columns of K, as pack_key_tiles writes them
  const char* v = nullptr;   ///< V, as pack_value_tiles writes it
  int64_t value_chunks = 0;  ///< chunks from 32 columns of v to the next 32 columns
  int64_t d = 0, dv = 0;
  float factor = 0;
  TileAttendStrip* strips = nullptr;
  int64_t strip_count = 0;
  bool whole_sums = false;  ///< whether the strips have `largest` and `whole_sum`
  // `group` and `chunks` are hints, which change no bits.
  int64_t group = 1;       ///< strips that visit a block of keys in turn; more than 1 for heads that do not fit L2
  int64_t chunks = 4;      ///< chunks per block of keys, at most kMostChunks
  char* memory = nullptr;  ///< scratch memory of kMemoryBytes, for scores and probabilities
  /// Applies masks and passes to the scores s[32][32] of a strip's chunk. The scores behind the last key become
  /// kMaskedScore, too.
  void (*edit)(const void* context, int64_t strip, int64_t chunk, float* s) = nullptr;
  const void* context = nullptr;
};

/// A strip of TileLoops::gradients. It has 32 lanes.
struct TileGradientStrip {
  const float *panel = nullptr, *do_panel = nullptr;  ///< Q and dO as pack_queries packs them
  int64_t begin = 0, end = 0;                         ///< the strip's chunks of 32 keys
  int64_t plain_begin = 0, plain_end = 0;             ///< as in TileAttendStrip
  const float *shift = nullptr, *delta = nullptr;     ///< what backward_softmax takes
  float* dq = nullptr;                                ///< [d][32]
  /// P and dS in the layout that pair_lanes writes, from chunk 0 on. All 32 keys of each of the strip's chunks are
  /// written.
  float *p_lanes = nullptr, *ds_lanes = nullptr;
};

/// The arguments of TileLoops::gradients. d and dv are multiples of TileAttendArgs::kColumns.
struct TileGradientArgs {
  static constexpr int64_t kMemoryBytes = 2 * TileAttendArgs::kMostRing * TileAttendArgs::kScoreBytes +
                                          2 * TileAttendArgs::kMostChunks * TileAttendArgs::kStepBytes;
  static constexpr int64_t group = 1, chunks = 4;  ///< as in TileAttendArgs

  const char *k = nullptr, *v = nullptr;  ///< all d columns of K and all dv columns of V as pack_key_tiles writes them
  const char* k_pairs = nullptr;  ///< K, as pair_rows writes it; if a pair is masked, all elements must be finite
  int64_t d = 0, dv = 0;
  float factor = 0;
  TileGradientStrip* strips = nullptr;
  int64_t strip_count = 0;
  bool accumulate = false;  ///< whether dQ is added to dq; else dq starts at 0
  char* memory = nullptr;   ///< scratch memory of kMemoryBytes, for scores, dP and dS
  // `edit` and `context` are as in TileAttendArgs.
  void (*edit)(const void* context, int64_t strip, int64_t chunk, float* s) = nullptr;
  const void* context = nullptr;
  FetchList* fetch = nullptr;  ///< a hint: per 32 x 32 sums, the list's next `fetch_lines` lines are prefetched
  int64_t fetch_lines = 0;
};

/// A query token of TileLoops::add_heads. Its chunks are 32 heads each.
struct TileHeadToken {
  const char* heads = nullptr;    ///< all heads of the token as pack_key_tiles writes them
  const float* weight = nullptr;  ///< the weight of each head
  float* sum = nullptr;           ///< the scores of 32 keys
  int64_t begin = 0, end = 0;     ///< its chunks of 32 heads; begin is 0
};

/// The arguments of TileLoops::add_heads. d is a multiple of TileAttendArgs::kColumns.
struct TileHeadArgs {
  static constexpr int64_t kHeads = 32;  ///< heads of a chunk
  static constexpr int64_t kMemoryBytes = TileAttendArgs::kMostRing * TileAttendArgs::kScoreBytes;
  static constexpr int64_t group = 1, chunks = 4;  ///< as in TileAttendArgs

  const float* panel = nullptr;  ///< 32 keys as pack_queries packs them
  int64_t d = 0;
  const TileHeadToken* strips = nullptr;
  int64_t strip_count = 0;
  char* memory = nullptr;  ///< scratch memory of kMemoryBytes, for products of keys with heads
};

/// The loops of the tile unit over all keys of some strips.
struct TileLoops {
  /// Computes scores, softmax and product.
  void (*attend)(const TileAttendArgs& args) = nullptr;
  /// Computes P, dS and dQ of a backward, with the bits of scores, backward_pairs and product.
  void (*gradients)(const TileGradientArgs& args) = nullptr;
  /// Computes sum[key] = sum over heads of weight[head] * max(0, q . k) for some query tokens, with the bits of scores
  /// and IndexerFunctions::add_heads.
  void (*add_heads)(const TileHeadArgs& args) = nullptr;
};

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_TILE_LOOP_TYPES_H_
