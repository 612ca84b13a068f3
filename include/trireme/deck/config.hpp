#pragma once

#include <trireme/base/fp8.hpp>
#include <trireme/base/types.hpp>
#include <trireme/deck/enums.hpp>
#include <trireme/deck/span_lengths.hpp>
#include <trireme/layout/process_grid.hpp>
#include <trireme/layout/stage_map.hpp>
#include <trireme/rules/kinds.hpp>
#include <trireme/schedule/schedules.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// A resolved deck as typed values. deck/table.hpp has the keys' units, ranges and help.
namespace trireme::deck {

struct RunConfig {
  std::string directory;
  std::int64_t steps = 0;
  std::int64_t seed = 0;
  Seconds time_limit = 0;  ///< 0: none
  std::int64_t log_every = 0;
  std::int64_t evaluate_every = 0;    ///< steps between evaluations; 0: only at the end
  std::int64_t evaluate_batches = 0;  ///< global batches per evaluation; 0: the whole file
  std::string prompts;                ///< file of texts to continue at evaluations; "": none
  std::string chat;                   ///< chat format of the prompts; "": plain texts
  std::int64_t prompt_tokens = 0;     ///< maximum number of tokens of a continuation
  Seconds watchdog = 0;               ///< time limit of one operation; 0: no limit
  bool timeline = false;  ///< record begin and end of each instruction of the last logged step
  std::int64_t audit_every = 0;  ///< steps between audits; 0: none
  AuditAction audit = AuditAction::stop;
  bool gradient_noise_scale = false;  ///< estimated in logged steps
  bool operator==(const RunConfig&) const = default;
};

/// Trained low-rank updates of products: [adapter].
struct AdapterConfig {
  AdapterKind kind = AdapterKind::none;
  std::int64_t rank = 8;
  double alpha = 16;
  AdapterScaling scaling = AdapterScaling::standard;
  double dropout = 0;                     ///< dropout of the adapters' inputs
  std::vector<std::string> targets;       ///< names of the products with adapters
  std::vector<std::string> parts;         ///< of the model: "layers", "encoder", "vision"
  std::vector<std::string> also_trained;  ///< patterns of array names (architecture/frozen.hpp)

  bool present() const { return kind != AdapterKind::none; }
  bool targets_product(std::string_view product) const {
    return present() && std::ranges::find(targets, product) != targets.end();
  }
  bool adapts(std::string_view part) const {
    return present() && std::ranges::find(parts, part) != parts.end();
  }
  /// Factor of a low-rank update. Hu et al. 2021, arXiv 2106.09685, section 4.1: alpha / rank;
  /// Kalajdzievski 2023, arXiv 2312.03732: alpha / √rank.
  double factor() const;
  bool operator==(const AdapterConfig&) const = default;
};

/// Mixture of experts: [experts]. A layer with experts has several feed-forward parts, of which
/// each token uses some (Shazeer et al. 2017, arXiv 1701.06538).
struct ExpertsConfig {
  std::int64_t number = 0;        ///< experts of a layer; 0: one feed-forward part for all tokens
  std::int64_t active = 2;        ///< experts that a token uses
  std::int64_t feed_forward = 0;  ///< inner width of an expert; resolved: model.feed_forward
  bool normalised = true;  ///< whether the weights of a token's experts are divided by their sum
  std::int64_t first_layer = 0;  ///< first layer with experts
  std::int64_t every = 1;        ///< distance between layers with experts
  ExpertBalance balance = ExpertBalance::none;
  double balance_weight = 0.01;  ///< weight of the loss that balances the experts of a layer
  double z_weight = 0;           ///< weight of the mean square of the logarithm of Σ exp(logits)
  /// Most tokens of a sample that an expert processes, relative to the mean; 0: no limit.
  double capacity = 0;
  /// Rows that a rank's experts process at a time, relative to the mean; 0: all.
  double rows = 0;
  bool split = false;  ///< whether tensor ranks split each expert; otherwise they divide whole ones

  ExpertScore score = ExpertScore::softmax;
  double scale = 1;                      ///< factor of the weights
  std::int64_t groups = 1;               ///< groups of neighbouring experts
  std::int64_t active_groups = 1;        ///< groups from which a token chooses
  bool choice_bias = false;              ///< whether a bias is added to the scores for the choice
  double bias_rate = 0;                  ///< change of this bias in a step; 0: it is constant
  std::int64_t shared_feed_forward = 0;  ///< inner width of the expert of all tokens; 0: none
  bool shared_gate = false;  ///< whether a sigmoid of each token scales the shared expert's result

  bool balances() const { return present() && balance != ExpertBalance::none; }
  /// Whether the loss uses the load of the previous batch.
  bool keeps_load() const { return present() && balance == ExpertBalance::batch; }
  /// Whether the optimizer needs the number of tokens of each expert in the global batch.
  bool counts_batch() const { return keeps_load() || (present() && bias_rate > 0); }
  bool limits_logits() const { return present() && z_weight > 0; }
  bool present() const { return number > 0; }
  bool shares() const { return present() && shared_feed_forward > 0; }
  /// Most tokens of a sample of `sequence` tokens that an expert processes: ⌈capacity · sequence ·
  /// active / number⌉, or all tokens.
  std::int64_t tokens_per_sample(std::int64_t sequence) const;
  bool drops(std::int64_t sequence) const { return tokens_per_sample(sequence) < sequence; }
  bool has_rounds() const { return present() && rows > 0; }
  /// Most replicas that can divide the experts, next to `tensor` tensor ranks.
  std::int64_t most_replicas(std::int64_t tensor) const { return split ? number : number / tensor; }
  bool in_layer(std::int64_t layer) const {
    return present() && layer >= first_layer && (layer - first_layer) % every == 0;
  }
  bool operator==(const ExpertsConfig&) const = default;
};

/// A second stack of layers, which reads the source of a sample: [encoder]. The layers of [model]
/// are then the decoder: each has cross-attention to the encoder's result (Vaswani et al. 2017,
/// arXiv 1706.03762).
struct EncoderConfig {
  std::int64_t layers = 0;    ///< 0: no encoder
  std::int64_t sequence = 0;  ///< tokens of the source of a sample
  double noise = 0.15;        ///< fraction of a text's tokens in spans (corrupted_spans)
  double span = 3;            ///< mean tokens of a span
  bool first_norm = false;    ///< whether a norm precedes the first layer; not a key
  bool final_norm = true;     ///< whether a norm follows the last layer; not a key

  bool present() const { return layers > 0; }
  bool operator==(const EncoderConfig&) const = default;
};

/// An encoder of images: [vision]. Its layers see the patches of one image at a time (Dosovitskiy
/// et al. 2020, arXiv 2010.11929), and a projector makes rows of tokens from their results, which
/// take the places of an image's tokens in the text (Liu et al. 2023, arXiv 2304.08485).
struct VisionConfig {
  VisionFamily family = VisionFamily::clip;
  std::int64_t layers = 0;  ///< 0: no images
  std::int64_t hidden = 0;  ///< Dv, the width of the encoder's residual stream
  std::int64_t heads = 0;
  std::int64_t feed_forward = 0;  ///< resolved: 4·hidden by default
  std::int64_t image = 0;         ///< pixels of an image's side
  std::int64_t patch = 0;         ///< pixels of a patch's side, a divisor of `image`
  /// Patches of a side of the squares whose means are the tokens of an image; a divisor of
  /// patches_per_side(). 1 unless the projector pools.
  std::int64_t pool = 1;
  std::int64_t images = 1;  ///< I, the most images of a sample

  bool present() const { return layers > 0; }
  bool has_class_token() const { return family == VisionFamily::clip; }
  bool has_patch_bias() const { return family != VisionFamily::clip; }
  /// Whether a norm follows the encoder's last layer.
  bool has_final_norm() const { return family == VisionFamily::gemma3; }
  /// Whether the projector is the mean of squares of patches, a norm and one product; otherwise two
  /// products of each row.
  bool pools() const { return family == VisionFamily::gemma3; }
  /// Whether the tokens of consecutive image tokens see one another in both directions.
  bool sees_whole_images() const { return family == VisionFamily::gemma3; }
  /// Whether colours have CLIP's means and deviations; otherwise they are between −1 and 1.
  bool has_clip_colours() const { return family == VisionFamily::clip; }
  std::int64_t patches_per_side() const { return image / patch; }
  /// Rows of an image in the encoder: its patches, after a class token if the family has one.
  std::int64_t rows() const {
    return patches_per_side() * patches_per_side() + (has_class_token() ? 1 : 0);
  }
  /// Tokens of an image in the text: one for each patch, or for each square of patches.
  std::int64_t tokens() const {
    const std::int64_t side = patches_per_side() / pool;
    return side * side;
  }
  /// Rows that the projector makes of an image. The last tokens() of them are the image's tokens.
  std::int64_t projected_rows() const { return pools() ? tokens() : rows(); }
  /// Values of a patch: its pixels times three colours.
  std::int64_t patch_values() const { return 3 * patch * patch; }
  std::int64_t pixel_bytes() const { return 3 * image * image; }  ///< of an image
  /// Words of four bytes that hold the pixels of a sample's images.
  std::int64_t pixel_words() const { return (images * pixel_bytes() + 3) / 4; }
  bool operator==(const VisionConfig&) const = default;
};

/// Largest [model] predicts.
inline constexpr std::int64_t most_predicts = 8;

/// Sizes and properties of a model. The family presets the properties.
struct ModelConfig {
  Family family = Family::gpt;
  std::int64_t layers = 0;  ///< with an encoder: of the decoder
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t key_value_heads = 0;     ///< resolved: heads by default
  std::int64_t explicit_head_size = 0;  ///< 0: hidden / heads
  std::int64_t key_value_rank = 0;      ///< columns of keys and values before their last product;
                                        ///< 0: no latent attention
  std::int64_t query_rank = 0;    ///< columns of queries before their last product; 0: one product
  std::int64_t rotary_size = 0;   ///< last columns of a head with rotary positions; 0: all
  std::int64_t value_size = 0;    ///< columns of a head's values; 0: the head size
  std::int64_t feed_forward = 0;  ///< resolved: 4·hidden by default
  std::int64_t sequence = 0;
  std::int64_t vocabulary = 0;     ///< 0 until resolved from the token file
  std::int64_t shared_layers = 0;  ///< layer i has weight group i mod shared_layers; 0: no sharing
  /// Tokens that each token predicts: the next one, and one more per module after the last layer.
  std::int64_t predicts = 1;
  double predict_weight = 0.3;  ///< weight of the mean loss of the modules
  double dropout = 0;
  bool tied_embeddings = true;
  NormKind norm = NormKind::layer;
  NormPlacement norm_placement = NormPlacement::pre;
  double norm_epsilon = 1e-5;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  Positions positions = Positions::learned;
  std::int64_t relative_buckets = 32;    ///< classes of distances with a bias of their own
  std::int64_t relative_distance = 128;  ///< distances from here on are in the last class
  double rope_theta = 10000;
  RotaryScalingKind rope_scaling = RotaryScalingKind::none;
  double rope_factor = 1;
  std::int64_t rope_original_sequence = 0;  ///< 0: not given
  double rope_low_frequency_factor = 1;
  double rope_high_frequency_factor = 4;
  double rope_beta_fast = 32;
  double rope_beta_slow = 1;
  double rope_attention_factor = 0;  ///< 0: 0.1 ln(rope_factor) + 1
  bool rope_truncate = true;         ///< whether YaRN's limits are rounded to whole pairs
  double rope_mscale = 0;            ///< DeepSeek's mscale: see yarn_magnitude(); 0: not given
  double rope_mscale_all = 0;        ///< DeepSeek's mscale_all_dim; 0: not given
  bool rope_interleaved = false;     ///< pairs are neighbours instead of from two halves
  Activation activation = Activation::gelu;
  double activation_limit = 7;  ///< limit of the inputs of clamped_swiglu
  Gelu gelu = Gelu::tanh;
  Biases biases = Biases::all;
  Mask mask = Mask::causal;
  std::int64_t window = 0;  ///< most tokens that a token sees, including itself; 0: no limit
  Objective objective = Objective::next_token;
  double masked_share = 0.15;  ///< masked fraction of a sample's tokens
  SentenceLoss sentence_loss = SentenceLoss::next;
  bool zero_centered_gains = false;  ///< RMSNorm multiplies by 1 + gain
  bool scaled_embeddings = false;    ///< rows of the token table are multiplied by √hidden
  double attention_softcap = 0;      ///< scores are c tanh(score / c); 0: unchanged
  double logit_softcap = 0;          ///< logits are c tanh(logit / c); 0: unchanged
  bool scaled_logits = false;        ///< logits are divided by √hidden
  std::int64_t query_pre_attention_scalar = 0;  ///< d in the score factor 1/√d; 0: the head size
  bool attention_sinks = false;           ///< softmax has one more score, trained, for each head
  std::int64_t full_attention_every = 0;  ///< layers n − 1, 2n − 1, … have no window; 0: no layer
  double window_rope_theta = 0;           ///< rotary base of layers with a window; 0: rope_theta
  AdapterConfig adapter = {};             ///< [adapter]
  ExpertsConfig experts = {};             ///< [experts]
  EncoderConfig encoder = {};             ///< [encoder]
  VisionConfig vision = {};               ///< [vision]
  std::vector<std::string> frozen = {};  ///< [optimizer] frozen: patterns of array names
  Packing packing = Packing::none;       ///< packing of samples; its key is [data] packing

  std::int64_t head_size() const {
    return explicit_head_size > 0 ? explicit_head_size : hidden / heads;
  }
  /// Number of query heads that share a head of keys and values.
  std::int64_t heads_per_group() const {
    return key_value_heads == 0 ? 1 : heads / key_value_heads;
  }
  /// Whether keys and values, and with query_rank queries, come from columns that all heads share.
  bool has_latent_attention() const { return key_value_rank > 0; }
  std::int64_t rotary_columns() const { return rotary_size > 0 ? rotary_size : head_size(); }
  std::int64_t value_columns() const { return value_size > 0 ? value_size : head_size(); }
  bool causal() const { return mask == Mask::causal; }
  bool gated() const { return activation != Activation::gelu && activation != Activation::relu; }
  /// Modules that predict further tokens, one each (DeepSeek-AI 2024, arXiv 2412.19437, section
  /// 2.2).
  std::int64_t modules() const { return predicts - 1; }
  /// Weight of the loss of one module, relative to the loss of the next token.
  double module_weight() const { return predict_weight / static_cast<double>(modules()); }
  /// Layers of the encoder, the projector of images, layers of the decoder and of modules, in this
  /// order.
  std::int64_t all_layers() const { return first_decoder_layer() + layers + modules(); }
  /// Layers of the encoder of texts or of images, of which a model has at most one.
  std::int64_t encoder_layers() const { return encoder.layers + vision.layers; }
  bool in_encoder(std::int64_t layer) const { return layer < encoder_layers(); }
  bool is_projector(std::int64_t layer) const { return vision.present() && layer == vision.layers; }
  std::int64_t first_decoder_layer() const { return encoder_layers() + (vision.present() ? 1 : 0); }
  bool in_module(std::int64_t layer) const { return layer >= first_decoder_layer() + layers; }
  /// Number 0 … of a layer among those of the decoder; for layers of modules that of the last
  /// layer, whose kind they have.
  std::int64_t decoder_layer(std::int64_t layer) const {
    return std::min(layer - first_decoder_layer(), layers - 1);
  }
  bool has_experts(std::int64_t layer) const {
    return layer >= first_decoder_layer() && experts.in_layer(decoder_layer(layer));
  }
  bool has_source() const { return encoder.present() || vision.present(); }
  /// Sources of a sample whose rows do not see one another: one text, or the images.
  std::int64_t sources() const { return vision.present() ? vision.images : 1; }
  /// Rows of a source, and of all sources of a sample.
  std::int64_t source_sequence() const {
    return vision.present() ? vision.rows() : encoder.sequence;
  }
  std::int64_t source_rows() const { return sources() * source_sequence(); }
  /// Rows that the projector makes of a sample's images; 0 without images.
  std::int64_t projected_rows() const {
    return vision.present() ? vision.images * vision.projected_rows() : 0;
  }
  /// The model to which the encoder's layers belong: this model, or for images one with the sizes
  /// and properties of [vision].
  ModelConfig of_source() const;
  bool has_relative_positions() const { return positions == Positions::relative; }
  /// Whether all layers have experts.
  bool only_experts() const {
    return experts.present() && experts.first_layer == 0 && experts.every == 1;
  }
  /// The most ranks that the tensor axis can have: each needs a part of every dimension that the
  /// axis splits. A vocabulary that is not resolved is not counted.
  std::int64_t most_tensor_ranks() const {
    std::int64_t most = heads;
    if (vision.present()) most = std::min({most, vision.heads, vision.feed_forward});
    if (!only_experts()) most = std::min(most, feed_forward);
    if (experts.present())
      most = std::min(most, experts.split ? experts.feed_forward : experts.number);
    if (experts.shares()) most = std::min(most, experts.shared_feed_forward);
    return vocabulary > 0 ? std::min(most, vocabulary) : most;
  }
  /// 0.1 k ln(rope_factor) + 1: YaRN's factor of queries and keys for k = 1, and DeepSeek's for k =
  /// rope_mscale or rope_mscale_all.
  double yarn_magnitude(double k) const { return 0.1 * k * std::log(rope_factor) + 1; }
  /// Factor of attention scores: 1/√K, unless the deck sets query_pre_attention_scalar; with
  /// rope_mscale_all also the square of its magnitude.
  double attention_scale() const {
    const std::int64_t n = query_pre_attention_scalar;
    const bool scaled = rope_scaling == RotaryScalingKind::yarn && rope_mscale_all > 0;
    const double magnitude = scaled ? yarn_magnitude(rope_mscale_all) : 1;
    return magnitude * magnitude / std::sqrt(static_cast<double>(n > 0 ? n : head_size()));
  }
  double logit_scale() const {
    return scaled_logits ? 1 / std::sqrt(static_cast<double>(hidden)) : 1;
  }
  double embedding_scale() const {
    return scaled_embeddings ? std::sqrt(static_cast<double>(hidden)) : 1;
  }
  double gain_offset() const { return zero_centered_gains ? 1 : 0; }
  /// The window of a layer; 0: no limit.
  std::int64_t window_of(std::int64_t layer) const {
    if (layer < first_decoder_layer()) return 0;
    const std::int64_t number = decoder_layer(layer) + 1;
    return full_attention_every > 0 && number % full_attention_every == 0 ? 0 : window;
  }
  bool packs_documents() const { return packing == Packing::documents; }
  /// Whether samples may end with padding.
  bool pads_samples() const { return packs_documents() || vision.present(); }
  bool predicts_masked_tokens() const { return objective == Objective::masked_token; }
  bool predicts_next_token() const { return objective == Objective::next_token; }
  bool predicts_spans() const { return objective == Objective::corrupted_spans; }
  bool reads_pairs() const { return objective == Objective::sequence_to_sequence; }
  bool has_sentence_head() const {
    return predicts_masked_tokens() && sentence_loss != SentenceLoss::none;
  }
  /// Lengths of samples with corrupted spans.
  SpanLengths spans() const;
  /// Text tokens of a sample; samples with masked tokens are [CLS] A [SEP] B [SEP].
  std::int64_t text_tokens() const {
    if (predicts_spans()) return spans().raw;
    return predicts_masked_tokens() ? sequence - 3 : sequence;
  }
  /// Number of predicted tokens, equal in all samples: all tokens, or the masked tokens.
  std::int64_t targets() const {
    if (!predicts_masked_tokens()) return sequence;
    const auto masked =
        static_cast<std::int64_t>(masked_share * static_cast<double>(sequence) + 0.5);
    return std::max<std::int64_t>(1, std::min(masked, text_tokens()));
  }
  bool operator==(const ModelConfig&) const = default;
};

struct ParallelConfig {
  LayoutMode layout = LayoutMode::given;
  std::string machine;  ///< machine file for layout or schedule = "auto"; "": this installation
  std::int64_t tensor = 1;
  std::int64_t context = 1;
  std::int64_t pipeline = 1;
  std::int64_t data = 0;    ///< 0: the remaining ranks
  std::int64_t expert = 1;  ///< consecutive replicas that divide the experts among them
  std::string order;        ///< order of the axes among the ranks, fastest first; "": the default
  ScheduleKind schedule = ScheduleKind::one_forward_one_backward;
  std::int64_t chunks = 1;              ///< stages per pipeline rank
  std::vector<std::int64_t> partition;  ///< layers of each stage; empty: stages of about equal cost
  std::string program;                  ///< file of a hand-written program, if schedule is `file`
  std::string timeline;                 ///< timeline file for schedule = "auto"; "": none
  StagePlacement placement = StagePlacement::automatic;
  VocabularyPlacement vocabulary = VocabularyPlacement::stage;
  bool sequence_parallel = false;
  Recompute recompute = Recompute::none;
  Bytes memory_limit = 0;               ///< per rank; 0: the memory in the machine file
  std::vector<std::string> recomputed;  ///< tensors that recompute = "auto" chose; not a key
  std::int64_t workers = 1;             ///< workers of local training; the key is [local] workers
  Sharding shard = Sharding::none;
  std::int64_t shard_group = 0;  ///< number of replicas that divide the state; 0: all
  Offload offload = Offload::none;
  TransportKind transport = TransportKind::automatic;
  bool share_devices = false;     ///< several ranks may use one device
  std::int64_t bucket_bytes = 0;  ///< largest size of the gradients in one all-reduce
  DataStrategy strategy = DataStrategy::all_reduce;
  std::int64_t servers = 1;    ///< servers of weights and state; each has model_ranks() ranks
  std::int64_t staleness = 0;  ///< maximum number of steps that a worker's weights may lag
  ServerUpdates updates = ServerUpdates::step;
  std::string replay;  ///< file of server events whose order this run repeats; "": none

  /// Sizes of all axes in the order of the ranks; `fallback` replaces an empty order.
  layout::AxisList axes(std::string_view fallback = "") const;
  /// Sizes of all axes in the default order.
  layout::AxisList sizes() const;
  /// Number of ranks that compute a sample together.
  std::int64_t model_ranks() const { return sizes().model_ranks(); }
  /// Number of equal groups of consecutive positions on the data axis that train different workers.
  std::int64_t worker_groups() const { return std::clamp<std::int64_t>(data, 1, workers); }
  /// Number of workers that a rank trains in turn.
  std::int64_t workers_per_rank() const { return workers / worker_groups(); }
  bool has_servers() const { return strategy == DataStrategy::server; }
  /// Number of positions of servers on the data axis, which follow the workers' positions.
  std::int64_t server_places() const { return has_servers() ? servers : 0; }
  /// Whether a worker's weights depend on the order of messages, which the run then records.
  bool records_events() const {
    return has_servers() && (staleness > 0 || updates == ServerUpdates::push);
  }
  /// Number of ranks that hold the same weights. With servers, only the workers' ranks are counted.
  std::int64_t replicas() const { return data / worker_groups() * context; }
  /// Number of the rank at this position among the replicas that divide the experts.
  int expert_rank(const layout::Coordinates& at) const;
  /// The most micro-batches whose tokens a group of replicas that divide the experts has: context
  /// ranks with the same samples have one together.
  std::int64_t expert_batches() const;
  /// Number of replicas that divide state among themselves.
  std::int64_t shard_ranks() const { return shard_group > 0 ? shard_group : replicas(); }
  std::int64_t ranks() const { return sizes().ranks(); }
  /// Whether replicas divide the optimizer's state, the sums of gradients, and the weights.
  bool divides_state() const { return shard >= Sharding::optimizer && shard_ranks() > 1; }
  bool divides_gradients() const { return shard >= Sharding::gradients && shard_ranks() > 1; }
  bool divides_weights() const { return shard == Sharding::weights && shard_ranks() > 1; }
  std::int64_t stages() const { return pipeline * chunks; }
  /// Whether all pipeline ranks hold parts of the token and output tables.
  bool shares_vocabulary() const {
    return vocabulary == VocabularyPlacement::pipeline && pipeline > 1;
  }
  /// Number of parts of the token and output tables, one per rank.
  std::int64_t vocabulary_parts() const { return shares_vocabulary() ? pipeline * tensor : tensor; }
  /// Placement of the stages, set by `placement` or by the schedule.
  layout::StageMap stage_map() const;
  /// Whether the program is read from a file.
  bool reads_program() const { return schedule == ScheduleKind::file; }
  /// Whether the program is searched for.
  bool searches_program() const { return schedule == ScheduleKind::automatic; }
  /// Whether a named schedule separates the two halves of the backward pass.
  bool splits_backward() const { return schedule::traits_of(schedule).splits_backward; }
  /// Whether a step's forward passes begin before the previous step's backward passes end, with two
  /// versions of the weights and of the gradients.
  bool overlaps_steps() const { return schedule::traits_of(schedule).overlaps_steps; }
  bool operator==(const ParallelConfig&) const = default;
};

struct BatchConfig {
  std::int64_t global = 0;          ///< samples per optimizer step
  std::int64_t micro = 0;           ///< samples per forward pass of a rank
  std::int64_t ramp_start = 0;      ///< samples of the first step; 0: global
  std::int64_t ramp_increment = 0;  ///< samples by which the global batch grows
  std::int64_t ramp_samples = 0;    ///< samples of the ramp-up
  bool operator==(const BatchConfig&) const = default;
};

struct PrecisionConfig {
  DType compute = DType::fp32;
  bool tf32 = false;  ///< with fp32: matrix products round their operands to 11 bits
  Products products = Products::compute;
  std::int64_t fp8_history = 1024;  ///< steps in the history of maxima
  Fp8Algorithm fp8_algorithm = Fp8Algorithm::max;
  AttentionKind attention = AttentionKind::automatic;
  double loss_scale = 65536;                ///< with fp16, at the first step
  std::int64_t loss_scale_interval = 1000;  ///< unskipped steps until doubling; 0: constant scale
  bool operator==(const PrecisionConfig&) const = default;
};

/// A part of the model with a learning rate of its own: an entry of [optimizer] rate_factors.
struct RateFactor {
  double factor = 1;    ///< of the learning rate
  std::string pattern;  ///< of the names of arrays, as in [optimizer] frozen
};
/// Reads "0.1 vision". Nothing if the text has another form, or the factor is not above 0.
std::optional<RateFactor> rate_factor_of(std::string_view text);

struct OptimizerConfig : rules::Settings {
  OptimizerKind kind = OptimizerKind::adamw;
  double learning_rate = 0;
  double minimum_learning_rate = 0;
  std::int64_t warmup_steps = 0;
  LearningRateSchedule schedule = LearningRateSchedule::cosine;
  std::int64_t decay_steps = 0;     ///< resolved: run.steps by default
  std::int64_t cooldown_steps = 0;  ///< resolved: 0 except for warmup_stable_decay
  CooldownShape cooldown_shape = CooldownShape::linear;
  RateScaling learning_rate_scaling = RateScaling::none;
  std::int64_t reference_batch = 0;  ///< resolved: batch.global by default
  Moments moments = Moments::full;
  double clip_norm = 0;                        ///< 0: no clipping
  std::vector<std::string> rate_factors = {};  ///< see RateFactor
  std::int64_t maximum_skips = 0;              ///< maximum number of consecutive skipped steps

  const rules::Description& rule() const { return rules::rule_of(kind); }
  bool operator==(const OptimizerConfig&) const = default;
};

/// Local training: [local]. The number of workers is in ParallelConfig.
struct LocalConfig {
  std::int64_t inner_steps = 50;  ///< steps between two outer steps of an array
  OuterOptimizer outer_optimizer = OuterOptimizer::nesterov;
  double outer_learning_rate = 0.7;
  double outer_momentum = 0.9;
  std::int64_t fragments = 1;  ///< parts of the model with separate outer steps
  std::int64_t delay = 0;      ///< steps from sending differences to the outer step
  double mixing = 0;           ///< share of its own weights that a worker keeps in an outer step
  Differences differences = Differences::full;
  bool operator==(const LocalConfig&) const = default;
};

struct DataConfig {
  std::string train;
  std::string validation;  ///< "": none
  std::string tokenizer;
  std::string end_of_document;  ///< "": the tokenizer's usual token
  bool replaced = false;  ///< permits other token files or another tokenizer than in the checkpoint
  /// Ids of bert's [CLS], [SEP] and [MASK]; −1: third last, second last and last id.
  std::int64_t class_token = -1;
  std::int64_t separator_token = -1;
  std::int64_t mask_token = -1;
  std::int64_t start_token = -1;  ///< this one and the next two: for corrupted spans
  std::int64_t end_token = -1;
  std::int64_t sentinel_token = -1;
  bool operator==(const DataConfig&) const = default;
};

struct CheckpointConfig {
  std::string directory;         ///< resolved: <run.directory>/checkpoints
  std::int64_t every = 0;        ///< steps between checkpoints; 0: only at the end
  std::int64_t keep = 0;         ///< newest checkpoints kept; 0: all
  std::int64_t keep_every = 0;   ///< checkpoints at multiples of this step are also kept; 0: none
  bool asynchronous = true;      ///< written in the background
  std::string local;             ///< folder on a disk of each node; "": no local checkpoints
  std::int64_t local_every = 0;  ///< steps between local checkpoints; 0: none
  std::string restart;           ///< "latest", "none" or a folder
  bool operator==(const CheckpointConfig&) const = default;
};

struct Config {
  RunConfig run;
  ModelConfig model;
  ParallelConfig parallel;
  BatchConfig batch;
  PrecisionConfig precision;
  OptimizerConfig optimizer;
  LocalConfig local;
  DataConfig data;
  CheckpointConfig checkpoint;

  /// Micro-batches of a rank in a step of one worker. `global`: samples of all workers.
  std::int64_t micro_batches(std::int64_t global) const {
    return global / (batch.micro * std::max(parallel.data, parallel.workers));
  }
  std::int64_t micro_batches() const { return micro_batches(batch.global); }
  /// This deck for the model without its modules, which only training and losses need.
  Config without_modules() const;
  bool operator==(const Config&) const = default;
};

/// Ids of [CLS], [SEP] and [MASK] in bert's samples.
struct SpecialTokens {
  std::int64_t begin = 0;
  std::int64_t separator = 0;
  std::int64_t mask = 0;
};

/// The special tokens of a deck whose vocabulary is resolved.
inline SpecialTokens special_tokens(const Config& c) {
  const auto id = [&](std::int64_t given, std::int64_t from_behind) {
    return given >= 0 ? given : c.model.vocabulary - from_behind;
  };
  return {id(c.data.class_token, 3), id(c.data.separator_token, 2), id(c.data.mask_token, 1)};
}

/// Ids of tokens that are not text in samples of models with an encoder: the first input of the
/// decoder, and with corrupted spans the end of sources and targets and the sentinel of the first
/// span, below which the other sentinels follow.
struct SpanIds {
  std::int64_t start = 0;
  std::int64_t end = 0;
  std::int64_t sentinel = 0;
};

/// Number of ids at the end of the vocabulary that the deck's samples take for these tokens.
inline std::int64_t added_span_ids(const Config& c) {
  const std::int64_t start = c.data.start_token < 0 ? 1 : 0;
  if (c.model.reads_pairs()) return start;
  return start + (c.data.end_token < 0 ? 1 : 0) +
         (c.data.sentinel_token < 0 ? c.model.spans().spans : 0);
}
/// These ids of a deck whose vocabulary is resolved: by default the last id is the start, and the
/// end and the sentinels precede it. So they depend neither on lengths nor on the objective.
inline SpanIds span_ids(const Config& c) {
  std::int64_t next = c.model.vocabulary;
  const auto id = [&](std::int64_t given) { return given < 0 ? --next : given; };
  const std::int64_t start = id(c.data.start_token), end = id(c.data.end_token);
  return {start, end, id(c.data.sentinel_token)};
}

}  // namespace trireme::deck
