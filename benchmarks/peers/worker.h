#ifndef FA_BENCHMARKS_PEERS_WORKER_H_
#define FA_BENCHMARKS_PEERS_WORKER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "fa/tensor.h"
#include "files/tensors.h"

/// The side of compare.py's conversation that a peer written in C++ takes: one JSON object a line on standard input,
/// one answer a line on standard output. benchmarks/peers/worker.py has the same for Python and says what is asked.
namespace fa::peers {

/// An attention call on dense BNSD tensors.
struct PeerCase {
  explicit PeerCase(const nlohmann::json& request);

  bool backward = false;
  int64_t batch = 0, heads = 0, heads_kv = 0, sq = 0, sk = 0, d = 0;
  DType dtype = DType::kF32;
  std::string mask;  ///< "full", "causal" or "windowN": the N keys before the diagonal and the diagonal
  int threads = 1;
  std::string folder;  ///< of q.npy, k.npy, v.npy, for the backward d_out.npy, and of the results

  [[nodiscard]] tool::Tensor Load(const char* name) const;
  void Save(const char* name, const tool::Tensor& tensor) const;
};

/// A case that a peer has no kernel for; what() says which part of it.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Peer {
 public:
  virtual ~Peer() = default;
  /// "version" and what else is worth telling about it.
  virtual nlohmann::json About() = 0;
  /// Reads the inputs, replaces the case before. For a backward, runs the forward. Throws Unsupported.
  virtual void Prepare(const PeerCase& prepared) = 0;
  /// What is timed.
  virtual void Call() = 0;
  /// Writes out.npy, or dq.npy, dk.npy and dv.npy.
  virtual void SaveResults() = 0;
  virtual void Release() = 0;
  /// The answer to a request that only this peer knows.
  virtual nlohmann::json Answer(const nlohmann::json& request);
};

/// Answers requests until standard input ends. @return the exit code
int Serve(Peer& peer);

}  // namespace fa::peers

#endif  // FA_BENCHMARKS_PEERS_WORKER_H_
