// Counts the memory and the messages of Muon by the rounds of its update.
#include <trireme/plan/muon.hpp>

#include <trireme/base/alignment.hpp>

#include <algorithm>

namespace trireme::plan {

Bytes muon_bytes(const std::vector<architecture::MatrixRounds>& rounds, Bytes element) {
  using architecture::MatrixRounds;
  const auto most = [&](std::int64_t (MatrixRounds::*elements)() const) {
    std::int64_t largest = 0;
    for (const MatrixRounds& each : rounds) largest = std::max(largest, (each.*elements)());
    return largest;
  };
  const std::int64_t whole = most(&MatrixRounds::whole_elements);
  return aligned(most(&MatrixRounds::part_elements) * element) +
         (rounds.front().tensor() > 1 ? aligned(whole * element) : 0) +
         aligned(most(&MatrixRounds::joined_elements) * element) +
         2 * aligned(most(&MatrixRounds::gram_elements) * element) +
         aligned(most(&MatrixRounds::chunk_elements) * element) +
         aligned((whole + norm_block - 1) / norm_block * 8) + aligned(8);
}

MuonTraffic muon_traffic(const architecture::MatrixRounds& rounds, int tensor_rank, int replica,
                         bool divided) {
  MuonTraffic traffic;
  for (int round = 0; round < rounds.rounds(); ++round)
    for (int to = 0; to < rounds.tensor(); ++to) {
      const std::int64_t most = rounds.most_elements(round, to, tensor_rank);
      for (std::int64_t first = 0; first < most && rounds.replicas() > 1; first += rounds.chunk()) {
        const std::int64_t size = rounds.replicas() * std::min(rounds.chunk(), most - first);
        if (divided) traffic.collected.add(1, size);
        traffic.returned.add(1, size);
      }
      const architecture::HiddenMatrix* m = rounds.matrix(round, replica, to);
      if (m == nullptr || rounds.tensor() == 1) continue;
      std::int64_t joined = 0;
      for (int rank = 0; rank < rounds.tensor(); ++rank) joined += m->elements_on(rank);
      traffic.gathered.add(1, joined);
      traffic.broadcast.add(1, m->elements());
    }
  return traffic;
}

}  // namespace trireme::plan
