#pragma once

#include <trireme/architecture/operation.hpp>
#include <trireme/deck/config.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::architecture {

/// A field of a batch: int32 values that a stage reads, as an array [B · per_sample] for each
/// micro-batch. `rows` determines the part that a context rank holds.
struct BatchField {
  std::string name;
  std::int64_t per_sample = 0;
  bool at_head = false;  ///< whether the head reads the field; otherwise the embedding does
  Rows rows = Rows::tokens;
  bool at_layers = false;  ///< whether all stages read the field

  bool is_read(bool first_stage, bool last_stage) const {
    return at_layers || (at_head ? last_stage : first_stage);
  }
};

/// Names of the fields with the pixels of images, and with the row of each token's image, or −1.
inline constexpr std::string_view pixels_field = "pixels";
inline constexpr std::string_view image_rows_field = "image_rows";
/// Name of the field with the end of each token's keys: in samples of pairs, and if tokens of an
/// image see one another.
inline constexpr std::string_view key_end_field = "key_end";

/// Names of the losses of layers with experts.
inline constexpr std::string_view balance_loss = "balance_loss";
inline constexpr std::string_view router_z_loss = "router_z_loss";
/// Prefix of the names of the losses of further predicted tokens.
inline constexpr std::string_view further_loss = "predict_loss_";

/// A term of the loss: a mean of cross entropies in nats. Training minimizes the sum of all terms;
/// those that are apart have the weight ModelConfig::module_weight().
struct LossTerm {
  std::string_view name;     ///< name of the mean in metrics.jsonl
  std::string_view counted;  ///< unit that has a cross entropy: "token", "masked token", "pair"
  std::int64_t per_sample = 0;
  /// Number of sums that add to the term: one of the head, or one per layer.
  std::int64_t parts = 1;
  bool of_layers = false;
  bool apart = false;       ///< whether metrics report the term apart from `loss`, without weight
  bool of_targets = false;  ///< whether the mean is over the targets that count, not over samples

  /// Number of cross entropies of which the term is the mean, in a batch with these numbers of
  /// targets and samples.
  std::int64_t count(std::int64_t targets, std::int64_t samples) const {
    return of_targets ? targets : samples * per_sample;
  }
};

/// Fields of a batch that a model reads, and the losses that its training minimizes. The batch and
/// the metrics are derived from both; the fields are tensors of the embedding and the head
/// (ends.hpp):
///
///   objective     fields                                  losses
///   next_token    tokens [S]; targets [S]                 loss: tokens
///                 with packed documents also positions [S] of tokens in their documents,
///                 and with experts sample_tokens [S]: tokens of the sample, 0 if padding
///                 with further tokens, for each also      predict_loss_n: tokens
///                 tokens_n [S] and targets_n [S]
///                 with images also pixels, image_rows [S]
///                 and, if an image's tokens see one
///                 another, key_end [S]
///   masked_token  tokens [S], segments [S];               loss: masked tokens; with a loss of
///                 targets [M], rows [M + 1], pairs [1]    pairs: pair_loss
///   corrupted_    tokens [S], source [S']; targets [S]    loss: tokens
///   spans
///   sequence_to_  tokens [S], source [S']; targets [S]    loss: tokens
///   sequence      ranges of keys of each query: source_begin, source_end [S'], key_begin, key_end
///                 [S]; with packed pairs also positions [S] of tokens in their targets
///   experts                                               balance_loss: samples,
///                                                         router_z_loss: tokens, of each layer
///
/// Shapes are per sample of S tokens, of which M are predicted. Without a loss of pairs, rows has
/// the shape [M], and there is no field pairs.
struct TrainingObjective {
  /// The embedding's fields, then the head's, then positions, then tokens of samples, then ranges
  /// of keys.
  std::vector<BatchField> fields;
  /// Loss of tokens first. Terms with one sum per layer are last.
  std::vector<LossTerm> losses;
  /// Layers with experts, whose numbers of tokens are counted beside the losses.
  std::vector<std::int64_t> expert_layers;
  std::int64_t experts = 0;  ///< of a layer
  bool drops = false;        ///< whether [experts] capacity limits the tokens of an expert

  /// Index of a field in `fields`.
  std::optional<std::size_t> find(std::string_view name) const;
  /// Index of a required field. Error if the objective does not have it.
  std::size_t field(std::string_view name) const;
  /// Number of terms that the head computes.
  std::int64_t head_losses() const;
  /// Number of sums of all terms, in the order of the terms and their layers.
  std::int64_t term_sums() const;
  /// Number of sums: term_sums(), then the numbers of tokens that choose each expert of each layer
  /// with experts, then with a limit the number of dropped choices of each of these layers.
  std::int64_t loss_sums() const;
  /// Index of the first sum of a term. Error if the objective does not have it.
  std::int64_t loss_sum(std::string_view name) const;
  /// Index of the sum of the first expert of a layer.
  std::int64_t expert_sum(std::int64_t layer) const;
  /// Index of the sum of a layer's dropped choices.
  std::int64_t dropped_sum(std::int64_t layer) const;
  /// For each layer with experts, the tokens that chose each expert.
  std::vector<std::vector<std::int64_t>> expert_tokens(std::span<const double> sums) const;
  /// For each layer with experts, the tokens of its most used expert, divided by the mean of all
  /// its experts: 1 if all are used equally; 0 if no token was counted.
  std::vector<double> expert_loads(std::span<const double> sums) const;
  /// With a limit: for each layer with experts, the fraction of its choices that are dropped.
  std::vector<double> dropped_choices(std::span<const double> sums) const;
  /// The terms of `sums`: the sums of a term's layers are added in their order.
  std::vector<double> terms_of(std::span<const double> sums) const;
  /// Whether targets are chosen tokens, not all tokens of a sample.
  bool chooses_targets() const { return find("rows").has_value(); }
  /// Number of int32 values of a sample in all fields.
  std::int64_t numbers_per_sample() const;
};

TrainingObjective objective_of(const deck::ModelConfig& model);

}  // namespace trireme::architecture
