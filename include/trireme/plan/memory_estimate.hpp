#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/ends.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/plan/memory_parts.hpp>
#include <trireme/schedule/needs.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

namespace trireme::plan {

/// Memory of the rank that needs the most, for many layouts of one deck, without its programs,
/// arrays and buckets. Weights, gradients and activations are exact, and slots too, except that in
/// a V every rank counts with those of the rank that has most. The optimizer's state that data
/// ranks share is at most one block of the norm for each bucket above the exact number; buffers of
/// transfers and sums differ by a few.
class MemoryEstimate {
 public:
  /// The references must outlive this. `arrays_only` as in most_bytes().
  MemoryEstimate(const deck::Config& config, const architecture::Architecture& architecture,
                 const Machine& machine, bool arrays_only);

  /// Bytes for these axes, schedule, chunks, micro-batch and so on; the other keys must be those of
  /// the deck.
  Bytes most_bytes(const deck::Config& config);

 private:
  /// Elements by which the arenas of a tensor rank grow with each part of the model.
  struct ModelParts {
    std::int64_t layer = 0;
    std::int64_t embedding = 0;
    std::int64_t head = 0;       ///< on a rank without the embedding
    std::int64_t ends = 0;       ///< both on the same rank
    std::int64_t ends_tied = 0;  ///< and the second gradient of a tied table
    std::int64_t table = 0;      ///< elements of a tied table
  };
  /// Elements of a part of the model where replicas divide more than the optimizer's state.
  struct DividedPart {
    std::int64_t state = 0;         ///< on the replica that has most
    std::int64_t second_state = 0;  ///< of them, without hidden matrices
    std::int64_t weights = 0;       ///< resident arrays and own parts
    std::int64_t gradients = 0;
    std::int64_t weight_window = 0;
    std::int64_t gradient_window = 0;
  };
  struct DividedParts {
    DividedPart layer, embedding, head, ends;
  };
  /// Elements of a rank besides those of ArenaParts.
  struct RankElements {
    ArenaParts arenas;
    std::int64_t whole = 0;   ///< weights, of which replicas save equal parts
    std::int64_t summed = 0;  ///< gradients that are in flight at a time
  };
  /// A pipeline rank that can need the most.
  struct Rank {
    int number = 0;
    architecture::Shard shard;
    std::int64_t layers = 0;
  };

  const ModelParts& model_parts(int tensor);
  const std::vector<Rank>& ranks_of(const deck::ParallelConfig& parallel);
  const ActivationParts& activations_of(const deck::Config& config, bool split);
  const DividedParts& divided_parts(const deck::Config& config);
  DividedPart divided_part(const deck::Config& config, const architecture::Shard& shard) const;
  void divide(const deck::Config& config, const Rank& rank, RankElements& elements);
  void divide_exactly(const deck::Config& config, const Rank& rank, RankElements& elements);
  RankElements elements_of(const deck::Config& config, const Rank& rank);
  Bytes reductions_of(const deck::Config& config, const Rank& rank, const ArenaParts& arenas,
                      const ModelParts& parts) const;
  Bytes on_host(const deck::Config& config, const RankElements& elements) const;

  const architecture::Architecture& architecture_;
  const Machine& machine_;
  bool arrays_only_;
  bool ranks_differ_;  ///< in more than the number of their layers
  TrainingSizes sizes_;
  bool grouped_;  ///< transfers by NCCL
  std::map<int, ModelParts> models_;
  std::map<int, std::vector<int>> tensor_ranks_;
  std::map<std::array<int, 3>, std::vector<Rank>> stages_;
  /// By tensor ranks, ranks of a shard, the division, and sequence_parallel.
  std::map<std::tuple<std::int64_t, std::int64_t, bool, bool, bool>, DividedParts> divided_;
  std::map<std::vector<std::int64_t>, ArenaParts> exact_;
  using Activations =
      std::tuple<std::int64_t, std::int64_t, Recompute, bool, bool, architecture::HeadGradient>;
  std::map<Activations, ActivationParts> activations_;
};

}  // namespace trireme::plan
