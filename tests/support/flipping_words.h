#ifndef FA_TESTS_SUPPORT_FLIPPING_WORDS_H_
#define FA_TESTS_SUPPORT_FLIPPING_WORDS_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace fa::test {

/// While an object of this class lives, a thread changes 32-bit words to another value and back, again and again.
/// Afterwards the words have their old values.
class FlippingWords {
 public:
  FlippingWords(std::vector<int32_t*> words, int32_t other) : words_(std::move(words)), other_(other) {
    thread_ = std::thread([this] { Flip(); });
  }
  ~FlippingWords() {
    stop_.store(true);
    thread_.join();
  }
  FlippingWords(const FlippingWords&) = delete;
  FlippingWords& operator=(const FlippingWords&) = delete;

 private:
  void Flip() {
    const auto write = [](int32_t* word, int32_t value) {
      std::atomic_ref<int32_t>(*word).store(value, std::memory_order_relaxed);
    };
    std::vector<int32_t> before;
    for (const int32_t* word : words_) before.push_back(*word);
    // The pauses have all lengths up to some microseconds. So a call's check may see one value, and the call's tasks
    // the other.
    for (uint32_t round = 0; !stop_.load(std::memory_order_relaxed); ++round) {
      for (int32_t* word : words_) write(word, other_);
      for (uint32_t i = 0; i < round * 7 % 512; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      for (size_t i = 0; i < words_.size(); ++i) write(words_[i], before[i]);
      for (uint32_t i = 0; i < round * 13 % 4096; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    }
  }

  std::vector<int32_t*> words_;
  int32_t other_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_FLIPPING_WORDS_H_
