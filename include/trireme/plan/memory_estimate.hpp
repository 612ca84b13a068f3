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

/// Estimates the memory of the rank that needs the most, for many layouts of one deck. Needs no
/// program of a layout, and computes sizes that several layouts share only once.
class MemoryEstimate {
 public:
  /// `architecture` and `machine` must outlive this object. `arrays_only`: see plan::most_bytes().
  MemoryEstimate(const deck::Config& config, const architecture::Architecture& architecture,
                 const Machine& machine, bool arrays_only);

  /// Bytes of the rank that needs the most memory, with the layout keys of `config`
  /// (deck::layout_keys). All other keys must equal the keys in the constructor's config.
  Bytes most_bytes(const deck::Config& config);
  /// A lower bound of most_bytes() that is computed faster, with equal parts of all that replicas
  /// divide, and without windows. 0 where most_bytes() is fast.
  Bytes least_bytes(const deck::Config& config);

 private:
  /// Elements by which the arenas of a tensor rank grow with each part of the model.
  struct ModelParts {
    std::int64_t layer = 0;
    std::int64_t embedding = 0;
    std::int64_t head = 0;       ///< head on a rank without the embedding
    std::int64_t ends = 0;       ///< embedding and head on the same rank
    std::int64_t ends_tied = 0;  ///< second gradient of a tied table on such a rank
    std::int64_t table = 0;      ///< elements of a tied table
    std::int64_t experts = 0;    ///< of the elements of a layer, experts that replicas divide
  };
  /// Elements of a part of the model, if replicas divide not only the optimizer's state.
  struct DividedPart {
    std::int64_t state = 0;        ///< optimizer state, on the replica with the most state
    std::int64_t other_state = 0;  ///< `state` without the rule's matrices
    std::int64_t weights = 0;      ///< resident arrays and the replica's own parts
    std::int64_t gradients = 0;
    std::int64_t weight_window = 0;
    std::int64_t gradient_window = 0;
  };
  struct DividedParts {
    DividedPart layer, embedding, head, ends;
  };
  /// Sizes of a rank's arenas, and elements that other buffers need.
  struct RankElements {
    ArenaSizes arenas;
    std::int64_t whole = 0;  ///< weights, which replicas save in equal parts
    std::int64_t trained = 0;
    std::int64_t summed = 0;  ///< gradients that are in flight at a time
  };
  /// A pipeline rank that may need more memory than all other ranks.
  struct Rank {
    int number = 0;
    architecture::Shard shard;
    std::int64_t layers = 0;
    /// Key of the sizes of its arrays: whether it has the embedding and the head, and the kinds of
    /// its layers, each with the number of consecutive layers; for shared layers also the stages.
    std::vector<std::int64_t> parts;
  };
  /// Elements of a rank's arrays: see architecture::Placement.
  struct PlacedElements {
    std::int64_t all = 0;
    std::int64_t gradients = 0;
    std::int64_t trained = 0;
    std::int64_t experts = 0;  ///< trained experts that replicas divide
  };

  const ModelParts& model_parts(const deck::ParallelConfig& parallel);
  const std::vector<Rank>& ranks_of(const deck::ParallelConfig& parallel);
  const ActivationSizes& activations_of(const deck::Config& config, bool split);
  const DividedParts& divided_parts(const deck::Config& config);
  DividedPart divided_part(const deck::Config& config, const architecture::Shard& shard) const;
  const PlacedElements& placed_elements(const deck::ParallelConfig& parallel, const Rank& rank);
  void divide(const deck::Config& config, const Rank& rank, RankElements& elements);
  void divide_exactly(const deck::Config& config, const Rank& rank, RankElements& elements);
  void divide_evenly(const deck::Config& config, RankElements& elements) const;
  RankElements elements_of(const deck::Config& config, const Rank& rank, bool least);
  Bytes bytes_of(const deck::Config& config, bool least);
  void add_matrices(const deck::Config& config, const Rank& rank, ArenaSizes& arenas) const;
  Bytes reductions_of(const deck::Config& config, const Rank& rank, const ArenaSizes& arenas,
                      const ModelParts& parts) const;
  Bytes on_host(const deck::Config& config, const RankElements& elements) const;

  const architecture::Architecture& architecture_;
  const Machine& machine_;
  bool arrays_only_;
  bool ranks_differ_;  ///< whether ranks differ by more than their number of layers
  TrainingSizes sizes_;
  bool grouped_;  ///< whether transfers use NCCL
  std::map<std::pair<std::int64_t, std::int64_t>, ModelParts> models_;  ///< by tensor and expert
  std::map<int, std::vector<int>> tensor_ranks_;
  std::map<std::array<int, 3>, std::vector<Rank>> stages_;
  /// Key: tensor ranks, replicas that divide the experts, ranks that divide state, the two flags of
  /// the division, sequence_parallel.
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, bool, bool, bool>, DividedParts>
      divided_;
  std::map<std::vector<std::int64_t>, PlacedElements> placed_;
  std::map<std::vector<std::int64_t>, ArenaSizes> exact_;
  using Activations = std::tuple<std::int64_t, std::int64_t, std::int64_t, Recompute, bool, bool,
                                 architecture::HeadGradient>;
  std::map<Activations, ActivationSizes> activations_;
};

}  // namespace trireme::plan
