#ifndef FA_RANKS_RUN_CHAIN_MESSAGES_H_
#define FA_RANKS_RUN_CHAIN_MESSAGES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/run/executor.h"
#include "fa/transport.h"
#include "ranks/plan/chain_graph.h"
#include "ranks/rows/messenger.h"
#include "ranks/run/unit_progress.h"

namespace fa::ops {

/// Moves the sums of one unit between ranks while the unit's graph runs. The sums of a block arrive before the block's
/// tiles run. The sums go on to the next rank when all these tiles have run.
///
/// A poll examines only the next blocks from the first unfinished block on, so few receives are under way.
///
/// Some transports can only wait for a message. Then the polling thread takes blocks strictly in their order. Before
/// the thread waits for the sums of a block, all earlier blocks have ended, and their sums have been sent. All ranks
/// follow one order of blocks. So the first block in that order for which some rank waits depends only on blocks that
/// have ended, and its sums arrive.
///
/// A transport may move messages only while it is called. So if the transport can test messages, every poll tests one
/// message that is under way: a message with sums if there is one, and otherwise a message of UnitProgress.
class ChainMessages final : public core::Arrivals {
 public:
  /// The state of a block during a run.
  struct BlockState {
    std::atomic<int32_t> tiles_left;
    bool received = false;                    ///< whether the block's sums have arrived, or are on this rank from the
                                              ///< start
    bool sent = false;                        ///< whether the block's sums are on their way, or the block sends no sums
    Transport::Request request = kNoRequest;  ///< the request of arriving sums
  };

  /// The largest number of receives under way at one time: one for each block that a poll examines.
  static constexpr int64_t kMostReceives = 4 * int64_t{tiling::kKeyCopies};

  /// The sums of a unit, chunk after chunk.
  struct Sums {
    float* data = nullptr;
    int64_t floats_per_key = 0;
    std::span<const tiling::SumChunk> chunks;

    [[nodiscard]] std::span<float> Of(int32_t chunk) const {
      const tiling::SumChunk& of = chunks[static_cast<size_t>(chunk)];
      return {data + of.at * floats_per_key, static_cast<size_t>(of.keys.size() * floats_per_key)};
    }
    /// Returns the index of `chunk` among the chunks whose sums go from rank to rank.
    [[nodiscard]] int32_t TravelNumberOf(int32_t chunk) const {
      return chunks[static_cast<size_t>(chunk)].travel_number;
    }
  };

  /// Prepares the messages of one unit.
  /// @param blocks  the rank's blocks of the unit
  /// @param states  one state per block
  /// @param leaving  for each chunk whose sums go from rank to rank, the request of its last send, or kNoRequest once
  ///   that send has ended
  /// @param others  the other messages; a poll tests one of them if it has no sums to test, because one test moves all
  ///   messages
  ChainMessages(Transport& transport, std::span<const tiling::ChainBlock> blocks, std::span<BlockState> states,
                const Sums& sums, std::span<Transport::Request> leaving, UnitProgress& others);

  /// Notes that a tile of `block` has run. Each task calls this function after its work.
  void TileHasRun(int32_t block) const {
    states_[static_cast<size_t>(block)].tiles_left.fetch_sub(1, std::memory_order_acq_rel);
  }

  [[nodiscard]] Status Poll(core::OnArrival arrived) override;
  [[nodiscard]] bool done() const override { return first_ == blocks_.size(); }
  /// Call this function after a run that failed. The function receives the remaining sums, and sends NaN instead of
  /// sums, in the order of blocks. So no other rank waits forever.
  [[nodiscard]] Status PassOn();
  /// Returns the first error that the transport returned.
  [[nodiscard]] const Status& failed() const { return failed_; }

 private:
  [[nodiscard]] Status PollBlock(size_t block, core::OnArrival arrived);
  [[nodiscard]] Status Receive(size_t block, bool may_wait);
  [[nodiscard]] Status Send(size_t block);
  [[nodiscard]] Status SendSpoilt(size_t block);
  [[nodiscard]] Transport::Request& LastSend(int32_t chunk) {
    return leaving_[static_cast<size_t>(sums_.TravelNumberOf(chunk))];
  }
  /// Sets *left to whether the sums that this rank sent last for the chunk have left.
  [[nodiscard]] Status HasLeft(int32_t chunk, bool may_wait, bool* left);
  /// Tests the message or, if `may_wait`, waits for it. Sets *done to whether it has ended.
  [[nodiscard]] Status Finish(Transport::Request request, bool may_wait, bool* done);
  /// A poll calls this function if it has tested no arriving sums. The function tests the oldest send of sums that has
  /// not ended. If all have ended, it polls `others`.
  [[nodiscard]] Status MoveOthers(core::OnArrival arrived);

  Transport& transport_;
  std::span<const tiling::ChainBlock> blocks_;
  std::span<BlockState> states_;
  Sums sums_;
  std::span<Transport::Request> leaving_;
  UnitProgress& others_;
  bool in_order_;
  bool tested_ = false;    ///< whether this poll has tested a message
  size_t first_ = 0;       ///< number of blocks, from the first on, that have run and whose sums are on their way
  size_t first_kept_ = 0;  ///< number of blocks, from the first on, whose sums have left or stay on this rank
  Status failed_;          ///< after an error nothing more is sent or received
};

}  // namespace fa::ops

#endif  // FA_RANKS_RUN_CHAIN_MESSAGES_H_
