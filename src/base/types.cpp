// The words that decks, logs and files use for each enum. Each array has the order of its enum's
// values; name_of and names read it.
#include <trireme/base/types.hpp>

#include <array>

namespace trireme {
namespace {

constexpr std::array<std::string_view, 9> dtype_names{"fp64",  "fp32",   "bf16",   "fp16", "int64",
                                                      "int32", "uint32", "uint16", "uint8"};
constexpr std::array<Bytes, 9> dtype_bytes{8, 4, 2, 2, 8, 4, 4, 2, 1};
constexpr std::array<std::string_view, 9> family_names{
    "gpt", "llama", "bert", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3"};
constexpr std::array<std::string_view, 2> norm_names{"layer", "rms"};
constexpr std::array<std::string_view, 3> placement_names{"pre", "post", "sandwich"};
constexpr std::array<std::string_view, 2> positions_names{"learned", "rotary"};
constexpr std::array<std::string_view, 3> activation_names{"gelu", "swiglu", "geglu"};
constexpr std::array<std::string_view, 3> biases_names{"none", "query_key_value", "all"};
constexpr std::array<std::string_view, 2> mask_names{"causal", "full"};
constexpr std::array<std::string_view, 2> objective_names{"next_token", "masked_token"};
constexpr std::array<std::string_view, 2> packing_names{"none", "documents"};
constexpr std::array<std::string_view, 2> gelu_names{"tanh", "exact"};
constexpr std::array<std::string_view, 3> sentence_loss_names{"next", "order", "none"};
constexpr std::array<std::string_view, 10> schedule_names{
    "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "v-half", "v-min", "2bw", "auto", "file"};
constexpr std::array<std::string_view, 3> stage_placement_names{"auto", "round_robin", "v"};
constexpr std::array<std::string_view, 2> vocabulary_names{"stage", "pipeline"};
constexpr std::array<std::string_view, 2> layout_names{"given", "auto"};
constexpr std::array<std::string_view, 4> recompute_names{"none", "selective", "full", "auto"};
constexpr std::array<std::string_view, 4> offload_names{"none", "optimizer", "activations", "both"};
constexpr std::array<std::string_view, 4> sharding_names{"none", "optimizer", "gradients",
                                                         "weights"};
constexpr std::array<std::string_view, 3> transport_names{"auto", "mpi", "nccl"};
constexpr std::array<std::string_view, 4> attention_names{"auto", "portable", "tensor_cores",
                                                          "cudnn"};
constexpr std::array<std::string_view, 5> optimizer_names{"adamw", "sgd", "lamb", "lars", "muon"};
constexpr std::array<std::string_view, 2> muon_scale_names{"match_adamw", "spectral"};
constexpr std::array<std::string_view, 5> learning_rate_names{
    "cosine", "linear", "constant", "inverse_square_root", "warmup_stable_decay"};
constexpr std::array<std::string_view, 3> scaling_names{"none", "linear", "square_root"};
constexpr std::array<std::string_view, 2> outer_names{"sgd", "nesterov"};
constexpr std::array<std::string_view, 2> differences_names{"full", "bf16"};
constexpr std::array<std::string_view, 4> cooldown_names{"linear", "cosine", "exponential",
                                                         "minus_square_root"};
constexpr std::array<std::string_view, axis_count> axis_names{"data", "pipeline", "tensor",
                                                              "context"};

}  // namespace

Bytes size_of(DType type) {
  return dtype_bytes[static_cast<std::size_t>(type)];
}

std::string_view name_of(DType x) {
  return dtype_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(Family x) {
  return family_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(NormKind x) {
  return norm_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(NormPlacement x) {
  return placement_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(Positions x) {
  return positions_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(Activation x) {
  return activation_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(Biases x) {
  return biases_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(Mask x) {
  return mask_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(Objective x) {
  return objective_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(Packing x) {
  return packing_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(Gelu x) {
  return gelu_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(SentenceLoss x) {
  return sentence_loss_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(StagePlacement x) {
  return stage_placement_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(ScheduleKind x) {
  return schedule_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(VocabularyPlacement x) {
  return vocabulary_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(LayoutMode x) {
  return layout_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(Recompute x) {
  return recompute_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(Offload x) {
  return offload_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(Sharding x) {
  return sharding_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(TransportKind x) {
  return transport_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(AttentionKind x) {
  return attention_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(OptimizerKind x) {
  return optimizer_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(MuonScale x) {
  return muon_scale_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(LearningRateSchedule x) {
  return learning_rate_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(RateScaling x) {
  return scaling_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(OuterOptimizer x) {
  return outer_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(Differences x) {
  return differences_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(CooldownShape x) {
  return cooldown_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(Axis x) {
  return axis_names[static_cast<std::size_t>(x)];
}

template <>
std::span<const std::string_view> names<DType>() {
  return dtype_names;
}
template <>
std::span<const std::string_view> names<Family>() {
  return family_names;
}
template <>
std::span<const std::string_view> names<NormKind>() {
  return norm_names;
}
template <>
std::span<const std::string_view> names<NormPlacement>() {
  return placement_names;
}
template <>
std::span<const std::string_view> names<Positions>() {
  return positions_names;
}
template <>
std::span<const std::string_view> names<Activation>() {
  return activation_names;
}
template <>
std::span<const std::string_view> names<Biases>() {
  return biases_names;
}
template <>
std::span<const std::string_view> names<Mask>() {
  return mask_names;
}
template <>
std::span<const std::string_view> names<Objective>() {
  return objective_names;
}
template <>
std::span<const std::string_view> names<Packing>() {
  return packing_names;
}
template <>
std::span<const std::string_view> names<Gelu>() {
  return gelu_names;
}
template <>
std::span<const std::string_view> names<SentenceLoss>() {
  return sentence_loss_names;
}
template <>
std::span<const std::string_view> names<StagePlacement>() {
  return stage_placement_names;
}
template <>
std::span<const std::string_view> names<ScheduleKind>() {
  return schedule_names;
}
template <>
std::span<const std::string_view> names<VocabularyPlacement>() {
  return vocabulary_names;
}
template <>
std::span<const std::string_view> names<LayoutMode>() {
  return layout_names;
}
template <>
std::span<const std::string_view> names<Recompute>() {
  return recompute_names;
}
template <>
std::span<const std::string_view> names<Offload>() {
  return offload_names;
}
template <>
std::span<const std::string_view> names<Sharding>() {
  return sharding_names;
}
template <>
std::span<const std::string_view> names<TransportKind>() {
  return transport_names;
}
template <>
std::span<const std::string_view> names<AttentionKind>() {
  return attention_names;
}
template <>
std::span<const std::string_view> names<OptimizerKind>() {
  return optimizer_names;
}
template <>
std::span<const std::string_view> names<MuonScale>() {
  return muon_scale_names;
}
template <>
std::span<const std::string_view> names<LearningRateSchedule>() {
  return learning_rate_names;
}
template <>
std::span<const std::string_view> names<RateScaling>() {
  return scaling_names;
}
template <>
std::span<const std::string_view> names<OuterOptimizer>() {
  return outer_names;
}
template <>
std::span<const std::string_view> names<Differences>() {
  return differences_names;
}
template <>
std::span<const std::string_view> names<CooldownShape>() {
  return cooldown_names;
}
template <>
std::span<const std::string_view> names<Axis>() {
  return axis_names;
}

}  // namespace trireme
