// The words that decks, logs and files use for each enum.
#include <trireme/deck/enums.hpp>

namespace trireme {

EnumWords enum_words(Family) {
  static constexpr auto all = words_of<Family>(
      "gpt", "llama", "bert", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3", "olmo2",
      "mixtral", "qwen3_moe", "olmoe", "qwen2_moe", "gpt_oss", "deepseek_v3", "t5");
  return all;
}

EnumWords enum_words(NormKind) {
  static constexpr auto all = words_of<NormKind>("layer", "rms");
  return all;
}

EnumWords enum_words(NormPlacement) {
  static constexpr auto all = words_of<NormPlacement>("pre", "post", "sandwich", "output");
  return all;
}

EnumWords enum_words(ExpertScore) {
  static constexpr auto all = words_of<ExpertScore>("softmax", "sigmoid");
  return all;
}

EnumWords enum_words(ExpertBalance) {
  static constexpr auto all = words_of<ExpertBalance>("none", "sequence", "batch");
  return all;
}

EnumWords enum_words(QueryKeyNorm) {
  static constexpr auto all = words_of<QueryKeyNorm>("none", "head", "width");
  return all;
}

EnumWords enum_words(Activation) {
  static constexpr auto all =
      words_of<Activation>("gelu", "swiglu", "geglu", "clamped_swiglu", "relu");
  return all;
}

EnumWords enum_words(Biases) {
  static constexpr auto all = words_of<Biases>("none", "query_key_value", "all");
  return all;
}

EnumWords enum_words(Mask) {
  static constexpr auto all = words_of<Mask>("causal", "full");
  return all;
}

EnumWords enum_words(Objective) {
  static constexpr auto all =
      words_of<Objective>("next_token", "masked_token", "corrupted_spans", "sequence_to_sequence");
  return all;
}

EnumWords enum_words(Packing) {
  static constexpr auto all = words_of<Packing>("none", "documents");
  return all;
}

EnumWords enum_words(SentenceLoss) {
  static constexpr auto all = words_of<SentenceLoss>("next", "order", "none");
  return all;
}

EnumWords enum_words(VocabularyPlacement) {
  static constexpr auto all = words_of<VocabularyPlacement>("stage", "pipeline");
  return all;
}

EnumWords enum_words(LayoutMode) {
  static constexpr auto all = words_of<LayoutMode>("given", "auto");
  return all;
}

EnumWords enum_words(Recompute) {
  static constexpr auto all = words_of<Recompute>("none", "selective", "full", "auto");
  return all;
}

EnumWords enum_words(Offload) {
  static constexpr auto all = words_of<Offload>("none", "optimizer", "activations", "both");
  return all;
}

EnumWords enum_words(Sharding) {
  static constexpr auto all = words_of<Sharding>("none", "optimizer", "gradients", "weights");
  return all;
}

EnumWords enum_words(TransportKind) {
  static constexpr auto all = words_of<TransportKind>("auto", "mpi", "nccl");
  return all;
}

EnumWords enum_words(Moments) {
  static constexpr auto all = words_of<Moments>("full", "bf16");
  return all;
}

EnumWords enum_words(LearningRateSchedule) {
  static constexpr auto all = words_of<LearningRateSchedule>(
      "cosine", "linear", "constant", "inverse_square_root", "warmup_stable_decay");
  return all;
}

EnumWords enum_words(RateScaling) {
  static constexpr auto all = words_of<RateScaling>("none", "linear", "square_root");
  return all;
}

EnumWords enum_words(OuterOptimizer) {
  static constexpr auto all = words_of<OuterOptimizer>("sgd", "nesterov");
  return all;
}

EnumWords enum_words(Differences) {
  static constexpr auto all = words_of<Differences>("full", "bf16");
  return all;
}

EnumWords enum_words(CooldownShape) {
  static constexpr auto all =
      words_of<CooldownShape>("linear", "cosine", "exponential", "minus_square_root");
  return all;
}

EnumWords enum_words(RotaryScalingKind) {
  static constexpr auto all =
      words_of<RotaryScalingKind>("none", "linear", "dynamic", "yarn", "llama3");
  return all;
}

EnumWords enum_words(VisionFamily) {
  static constexpr auto all = words_of<VisionFamily>("clip", "siglip", "gemma3");
  return all;
}

EnumWords enum_words(AdapterKind) {
  static constexpr auto all = words_of<AdapterKind>("none", "lora", "dora");
  return all;
}

EnumWords enum_words(AdapterScaling) {
  static constexpr auto all = words_of<AdapterScaling>("standard", "rslora");
  return all;
}

EnumWords enum_words(AuditAction) {
  static constexpr auto all = words_of<AuditAction>("stop", "repair");
  return all;
}

EnumWords enum_words(DataStrategy) {
  static constexpr auto all = words_of<DataStrategy>("all_reduce", "server");
  return all;
}

EnumWords enum_words(ServerUpdates) {
  static constexpr auto all = words_of<ServerUpdates>("step", "push");
  return all;
}

}  // namespace trireme
