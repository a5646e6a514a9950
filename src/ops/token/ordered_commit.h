#ifndef FA_OPS_ORDERED_COMMIT_H_
#define FA_OPS_ORDERED_COMMIT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fa::ops {

/// Keeps the order in which query tokens add to shared sums. The tokens of a sequence add to a key's sum in ascending
/// order, whichever threads run them. Each token walks its keys in ascending order and publishes how far it has come.
/// Before a token adds to a tile of keys, it waits until every earlier token of its sequence is past these keys.
///
/// No token waits forever. Workers must claim tokens in ascending order from one list (TaskGraph::shared_claims), and
/// no edge may lead to a token. A worker must run each token as soon as it has claimed the token. So every token before
/// a waiting one has finished or is running, and the lowest running token waits for none. If a task throws, the
/// destructor of its Turn finishes the token. Waiting costs little, because consecutive tokens start one right after
/// the other.
///
/// docs/sparse.md compares the costs of alternatives.
class OrderedCommit {
 public:
  /// Returns the bytes of the words in which tokens publish their progress.
  [[nodiscard]] static size_t Bytes(int64_t tokens, int64_t sequences) {
    return static_cast<size_t>(sequences) * sizeof(int64_t) + static_cast<size_t>(tokens) * sizeof(int32_t);
  }
  /// Lays out `memory`, which is 8-byte aligned, for one run. Tokens are numbered through all sequences.
  OrderedCommit(std::byte* memory, int64_t tokens, int64_t sequences);

  /// One token's turn, from its first key to its last. The destructor finishes the token.
  class Turn {
   public:
    /// @param first  the first token of `sequence`
    /// @param token  the token whose turn this is
    Turn(const OrderedCommit& commit, int64_t sequence, int64_t first, int64_t token);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    /// Waits until every earlier token of the sequence has added to its keys below `end`.
    void WaitFor(int32_t end);
    /// Publishes that this token has added to its keys below `end`.
    void Publish(int32_t end) { Store(token_, end); }

   private:
    void Store(int64_t token, int32_t progress) const;

    const OrderedCommit& commit_;
    int64_t sequence_, first_, token_;
    int64_t unfinished_;  ///< the first token of the sequence that is not known to be finished
  };

 private:
  int64_t* finished_;  ///< for each sequence: how many of its tokens, from the first on, are known to be finished
  int32_t* progress_;  ///< for each token: it has added to all its keys below this number
};

/// Lets tasks of a list wait until `tasks` earlier tasks of the list have finished. No task waits forever, because
/// workers claim the tasks of the list in order, as for OrderedCommit.
class PhaseGate {
 public:
  /// `word` counts the tasks that have arrived, and must be 0 before a run.
  PhaseGate(int64_t* word, int64_t tasks) : word_(word), tasks_(tasks) {}
  void Arrive() const { std::atomic_ref<int64_t>(*word_).fetch_add(1, std::memory_order_acq_rel); }
  void Wait() const;

 private:
  int64_t* word_;
  int64_t tasks_;
};

/// Tells the gate, in its destructor, that a task has finished, also after an exception.
class PhaseArrival {
 public:
  explicit PhaseArrival(const PhaseGate& gate) : gate_(gate) {}
  ~PhaseArrival() { gate_.Arrive(); }
  PhaseArrival(const PhaseArrival&) = delete;
  PhaseArrival& operator=(const PhaseArrival&) = delete;

 private:
  const PhaseGate& gate_;
};

}  // namespace fa::ops

#endif  // FA_OPS_ORDERED_COMMIT_H_
