#ifndef FA_BENCHMARKS_PEERS_WORKER_H_
#define FA_BENCHMARKS_PEERS_WORKER_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "fa/tensor.h"
#include "files/tensors.h"

/// The part of a C++ peer that talks with compare.py. Standard input has one JSON object per line, a request; standard
/// output has one answer per line. benchmarks/peers/worker.py does the same in Python and lists the requests.
namespace fa::peers {

/// An attention call on dense BNSD tensors.
struct PeerCase {
  explicit PeerCase(const nlohmann::json& request);

  bool backward = false;
  int64_t batch = 0, heads = 0, heads_kv = 0, sq = 0, sk = 0, d = 0;
  DType dtype = DType::kF32;
  std::string mask;  ///< "full", "causal" or "windowN", which keeps the diagonal and the N keys before it
  int threads = 1;
  std::string folder;  ///< folder of q.npy, k.npy, v.npy, of d_out.npy for the backward, and of the results

  [[nodiscard]] tool::Tensor Load(const char* name) const;
  void Save(const char* name, const tool::Tensor& tensor) const;
};

[[nodiscard]] std::span<const std::byte> BytesOf(const tool::Tensor& tensor);

/// The peer has no kernel for a case; what() names the part of the case that is unsupported.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Peer {
 public:
  virtual ~Peer() = default;
  /// Returns "version" and other facts about the peer.
  virtual nlohmann::json About() = 0;
  /// Reads the inputs and replaces the previous case. For a backward, runs the forward. Throws Unsupported.
  virtual void Prepare(const PeerCase& prepared) = 0;
  /// Returns what the peer chose for the case, in a few words, or "" if it had no choice.
  virtual std::string Note() { return {}; }
  /// Makes the call that is timed.
  virtual void Call() = 0;
  /// Writes out.npy, or dq.npy, dk.npy and dv.npy.
  virtual void SaveResults() = 0;
  virtual void Release() = 0;
  /// Returns the memory of the case's keys and values, at the addresses that the call reads.
  virtual std::vector<std::span<const std::byte>> Memory() = 0;
  /// Answers a request that only this peer knows.
  virtual nlohmann::json Answer(const nlohmann::json& request);
};

/// Answers requests until standard input ends. @return the exit code
int Serve(Peer& peer);

}  // namespace fa::peers

#endif  // FA_BENCHMARKS_PEERS_WORKER_H_
