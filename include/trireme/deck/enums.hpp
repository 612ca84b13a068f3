#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>

namespace trireme {

/// A published architecture: a name for one choice of the properties below (deck/families.hpp).
enum class Family : std::uint8_t {
  gpt,
  llama,
  bert,
  qwen2,
  qwen3,
  mistral,
  gemma,
  gemma2,
  gemma3,
  olmo2,
  mixtral,
  qwen3_moe,
  olmoe,
  qwen2_moe,
  gpt_oss,
  deepseek_v3,
  t5
};

/// LayerNorm (Ba et al. 2016) or RMSNorm (Zhang and Sennrich 2019).
enum class NormKind : std::uint8_t { layer, rms };

/// Position of the norms: before attention and feed-forward, after each residual addition, before
/// attention and feed-forward and after them (Ding et al. 2021, arXiv 2105.13290), or only after
/// them (OLMo Team 2025, arXiv 2501.00656, section 3.2).
enum class NormPlacement : std::uint8_t { pre, post, sandwich, output };

/// RMSNorm of queries and keys, before rotary positions: none, per head, or over all heads.
enum class QueryKeyNorm : std::uint8_t { none, head, width };

/// Scores of a router, from its logits.
enum class ExpertScore : std::uint8_t { softmax, sigmoid };

/// Loss that spreads tokens over the experts: none, or one per sample (DeepSeek-AI 2024, arXiv
/// 2412.19437, section 2.1.2).
enum class ExpertBalance : std::uint8_t { none, sequence, batch };

/// Non-linearity of the feed-forward: GELU, ReLU, or a product with the SiLU or the GELU of a gate.
enum class Activation : std::uint8_t { gelu, swiglu, geglu, clamped_swiglu, relu };

/// Matrix products of a layer that have a bias.
enum class Biases : std::uint8_t { none, query_key_value, all };

/// Tokens of the sample that a token attends to: the tokens up to itself, or all tokens.
enum class Mask : std::uint8_t { causal, full };

/// Training objective: prediction of the next token, of masked tokens, or of spans that the
/// encoder's text lacks (Raffel et al. 2020, arXiv 1910.10683, section 3.1.4).
enum class Objective : std::uint8_t {
  next_token,
  masked_token,
  corrupted_spans,
  sequence_to_sequence  ///< targets of pairs of a source and a target
};

/// Content of a sample: a window of the token stream, or documents that do not see one another.
enum class Packing : std::uint8_t { none, documents };

/// Second loss of bert: whether the second segment follows the first, their order, or none.
enum class SentenceLoss : std::uint8_t { next, order, none };

/// Ranks that hold the token table and the output table: the ranks of the first and the last stage,
/// or all pipeline ranks in parts.
enum class VocabularyPlacement : std::uint8_t { stage, pipeline };

/// Origin of the layout: the deck, or a search for the job's number of ranks.
enum class LayoutMode : std::uint8_t { given, automatic };

/// Tensors that are recomputed in the backward pass, and not stored.
enum class Recompute : std::uint8_t { none, selective, full, automatic };

/// Data that a device stores in host memory.
enum class Offload : std::uint8_t { none, optimizer, activations, both };

/// State that replicas divide among themselves: the stages 0 to 3 of ZeRO, each of which includes
/// the state of earlier stages (Rajbhandari et al. 2020, arXiv 1910.02054).
enum class Sharding : std::uint8_t { none, optimizer, gradients, weights };

/// Transport of messages between ranks: "auto" is NCCL if this installation has it and ranks do not
/// share devices, otherwise MPI.
enum class TransportKind : std::uint8_t { automatic, mpi, nccl };

/// Type of the optimizer's moments: as the master weights, or bf16 with stochastic rounding.
enum class Moments : std::uint8_t { full, bf16 };

/// Course of the learning rate after the warm-up.
enum class LearningRateSchedule : std::uint8_t {
  cosine,
  linear,
  constant,
  inverse_square_root,
  warmup_stable_decay
};

/// Scaling of the learning rate with the size of the batch.
enum class RateScaling : std::uint8_t { none, linear, square_root };

/// Rule by which local training changes the weights that its workers share.
enum class OuterOptimizer : std::uint8_t { sgd, nesterov };

/// Type of the weights' differences that workers send: the type of the updated weights, or bf16.
enum class Differences : std::uint8_t { full, bf16 };

/// Shape of the decay at the end of `warmup_stable_decay`.
enum class CooldownShape : std::uint8_t { linear, cosine, exponential, minus_square_root };

/// Extension of rotary positions beyond the sequence that a model was trained with.
enum class RotaryScalingKind : std::uint8_t {
  none,
  linear,   ///< positions divided by a factor (Chen et al. 2023, arXiv 2306.15595)
  dynamic,  ///< a base of the wavelengths that depends on the length of samples ("NTK-aware")
  yarn,     ///< long wavelengths multiplied by a factor (Peng et al. 2023, arXiv 2309.00071)
  llama3    ///< as yarn, with limits by wavelength, and without yarn's factor of queries and keys
            ///< (Grattafiori et al. 2024, arXiv 2407.21783)
};

/// Encoders of images: CLIP (Radford et al. 2021, arXiv 2103.00020) or SigLIP (Zhai et al. 2023,
/// arXiv 2303.15343).
enum class VisionFamily : std::uint8_t { clip, siglip, gemma3 };

/// Trained additions to the weights of products.
enum class AdapterKind : std::uint8_t {
  none,
  lora,  ///< low-rank updates (Hu et al. 2021, arXiv 2106.09685)
  dora   ///< lora with a trained norm of each output's weights (Liu et al. 2024, arXiv
         ///< 2402.09353)
};

/// The factor of a low-rank update.
enum class AdapterScaling : std::uint8_t {
  standard,  ///< alpha / rank
  rslora     ///< alpha / √rank (Kalajdzievski 2023, arXiv 2312.03732)
};

/// Reaction to wrong results that an audit finds (docs/reliability.md).
enum class AuditAction : std::uint8_t {
  stop,
  repair  ///< continue from the correct results, if they are known
};

/// Method by which replicas share updates: all of them sum the gradients, or servers hold the
/// weights (Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server").
enum class DataStrategy : std::uint8_t { all_reduce, server };
/// Gradients of one update of the servers: the gradients of all workers in a step, or the gradients
/// that one worker pushes.
enum class ServerUpdates : std::uint8_t { step, push };

EnumWords enum_words(Family);
EnumWords enum_words(NormKind);
EnumWords enum_words(NormPlacement);
EnumWords enum_words(QueryKeyNorm);
EnumWords enum_words(ExpertScore);
EnumWords enum_words(ExpertBalance);
EnumWords enum_words(Activation);
EnumWords enum_words(Biases);
EnumWords enum_words(Mask);
EnumWords enum_words(Objective);
EnumWords enum_words(Packing);
EnumWords enum_words(SentenceLoss);
EnumWords enum_words(VocabularyPlacement);
EnumWords enum_words(LayoutMode);
EnumWords enum_words(Recompute);
EnumWords enum_words(Offload);
EnumWords enum_words(Sharding);
EnumWords enum_words(TransportKind);
EnumWords enum_words(Moments);
EnumWords enum_words(LearningRateSchedule);
EnumWords enum_words(RateScaling);
EnumWords enum_words(OuterOptimizer);
EnumWords enum_words(Differences);
EnumWords enum_words(CooldownShape);
EnumWords enum_words(RotaryScalingKind);
EnumWords enum_words(VisionFamily);
EnumWords enum_words(AdapterKind);
EnumWords enum_words(AdapterScaling);
EnumWords enum_words(AuditAction);
EnumWords enum_words(DataStrategy);
EnumWords enum_words(ServerUpdates);

}  // namespace trireme
