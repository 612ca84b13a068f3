#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/block_program.hpp>
#include <trireme/architecture/ends.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/model/context.hpp>
#include <trireme/model/fp8_scaling.hpp>
#include <trireme/model/ring_attention.hpp>
#include <trireme/model/tensor_axis.hpp>
#include <trireme/tensor/arena.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace trireme::model {

/// Plan shared by a rank's blocks of one kind.
struct BlockPlan {
  architecture::BlockDescription description;
  architecture::RankSizes sizes;
  architecture::BlockProgram program;
  const Fp8Scaling* fp8 = nullptr;  ///< scales with [precision] products = "fp8"; otherwise null
  architecture::HeadGradient head = architecture::HeadGradient::with_losses;  ///< only for heads
};

/// Plans of the embedding (first) and of each kind of layer. `kept`: tensors that each kind of
/// layer keeps for its backward passes. The embedding's backward pass is never split. `looks_up`:
/// whether the embedding looks up tokens; false if all pipeline ranks share the vocabulary.
template <class P>
std::vector<BlockPlan> plan_blocks(const architecture::Architecture& architecture,
                                   const architecture::RankSizes& sizes,
                                   const std::vector<architecture::Kept>& kept, bool training,
                                   bool split_backward, bool looks_up = true) {
  using T = typename P::Compute;
  std::vector<BlockPlan> plans;
  const auto add = [&](architecture::BlockDescription block, const architecture::Kept& of_block,
                       bool split) {
    architecture::BlockProgram program = architecture::lower(
        block, sizes, {of_block, training, split, sizeof(T), sizeof(Accumulate<T>)});
    const architecture::RankSizes here = sizes.of(block.stream);
    plans.push_back({std::move(block), here, std::move(program)});
  };
  architecture::BlockDescription embedding = architecture.embedding();
  if (!looks_up) embedding = architecture::without_vocabulary(std::move(embedding));
  const architecture::Kept fields = architecture::kept_for_evaluation(embedding);
  add(std::move(embedding), fields, false);
  for (const architecture::BlockDescription& layer : architecture.layer_kinds())
    add(layer, kept.at(plans.size() - 1), split_backward);
  return plans;
}

template <class P>
BlockPlan plan_head(const deck::ModelConfig& model, const architecture::RankSizes& sizes,
                    architecture::HeadGradient gradient) {
  using T = typename P::Compute;
  architecture::BlockDescription head = architecture::describe_head(model, gradient);
  architecture::BlockProgram program =
      architecture::lower_head(head, sizes, sizeof(T), sizeof(Accumulate<T>));
  return {std::move(head), sizes, std::move(program), nullptr, gradient};
}

/// Whether a tensor has rows of a head, all of which every tensor rank has.
inline bool is_shared(const architecture::BlockDescription& part, int tensor) {
  const architecture::Rows rows = part.tensors[static_cast<std::size_t>(tensor)].rows;
  return rows != architecture::Rows::own && rows != architecture::Rows::tokens;
}

/// Memory of one block for one micro-batch.
struct BlockMemory {
  std::byte* kept = nullptr;  ///< in use from the forward pass to the backward passes
  std::byte* work = nullptr;  ///< in use from backward_input to a separate backward_weight
  /// The model's values and their gradients (architecture::ModelValue); null if it has none.
  std::byte* values = nullptr;
  std::byte* value_gradients = nullptr;
};

inline BlockMemory take_block_memory(Arena& arena, Bytes kept, Bytes work) {
  BlockMemory memory;
  memory.kept = arena.take<std::byte>(kept).data();
  if (work > 0) memory.work = arena.take<std::byte>(work).data();
  return memory;
}

/// Memory used within one pass of one block.
template <class P>
struct BlockScratch {
  using T = typename P::Compute;
  View1<T> gathered;                         // [T · columns], only with sequence parallelism
  View1<Accumulate<T>> attention_work;       // size: kernels::attention_workspace_elements
  RingMemory<T> ring;                        // replaces attention_work if context ranks > 1
  std::byte* transient = nullptr;            ///< size: BlockProgram::transient_bytes
  std::byte* codes = nullptr;                ///< size: architecture::fp8_code_bytes; null: no fp8
  View1<T> adapter_rows, adapter_gradients;  // [T · rows], see architecture::AdapterScratch
  View1<T> adapter_input;                    // [T · columns], only in training with dropout
  View1<T> adapter_product;                  // [scaled], only with magnitudes

  /// Memory for rows of all tokens of an axis, with the columns of `rows`.
  View2<T> all(const TensorAxis& axis, const View2<T>& rows) const {
    return View2<T>(gathered.data(), static_cast<std::size_t>(axis.tokens()), rows.extent(1));
  }
};

/// Sources in a pass of generation with an encoder. Its W rows are tokens of one or more sources,
/// each in consecutive rows, or its R rows are tokens of texts, which attend to the cached keys and
/// values of their sources.
template <class P>
struct SourceDecoding {
  using T = typename P::Compute;
  View3<T> key_cache;                    // [B, S', Hkv K]; empty in the encoder
  View3<T> value_cache;                  // [B, S', Hkv K]; empty in the encoder
  kernels::CacheRows rows;               ///< positions of the W rows in the caches
  View1<const std::int32_t> begin, end;  // [W] first row, and one past the last row, of the source
  kernels::CacheRows ends;               ///< of the R rows: last positions of their sources
};

/// Rows of images in generation: a pass over the images of a text writes them, and passes over
/// tokens read them.
template <class T>
struct ImageDecoding {
  View2<T> rows;                     // [I', D] of one text, or [B I', D] of all texts
  View1<const std::int32_t> places;  // [R] row of each token in `rows`, or −1; empty: writes
};

/// Arguments of generation in addition to the arguments of a forward pass.
template <class P>
struct Decoding {
  using T = typename P::Compute;
  View3<T> key_cache;                // [B, S, Hkv K]
  View3<T> value_cache;              // [B, S, Hkv K]
  View2<T> queries;                  // [R, H K] scratch
  kernels::CacheRows rows;           ///< positions of the R rows in the caches
  SourceDecoding<P> source = {};     ///< for models with an encoder
  ImageDecoding<T> images = {};      ///< for models that see images
  View2<Accumulate<T>> logits = {};  // [R, V] result of the head; empty for layers
};

/// Views of a block's tensors and gradients, at the places that a phase of its program assigns.
template <class P>
class BlockValues {
 public:
  using T = typename P::Compute;

  BlockValues(const BlockPlan& plan, const architecture::PhaseProgram& phase,
              const BlockMemory& memory, std::byte* transient, View2<T> stream, View2<T> output)
      : plan_(plan),
        phase_(phase),
        memory_(memory),
        transient_(transient),
        stream_(stream),
        output_(output) {}

  /// Values of a tensor, and gradient of a tensor, as [rows, columns].
  View2<T> matrix(int tensor) const {
    return view<T>(phase_.tensors[index(tensor)], plan_.description.tensors[index(tensor)],
                   memory_.values);
  }
  View2<T> gradient(int tensor) const {
    return view<T>(tensor == contributed_ ? contribution_place_ : phase_.gradients[index(tensor)],
                   architecture::gradient_of(plan_.description, tensor), memory_.value_gradients);
  }
  /// Redirects gradient(tensor) to the memory at `place` until the next write_contribution().
  /// `tensor` −1: all gradients are at the places of the phase again. Returns gradient(tensor), or
  /// an empty view for −1.
  View2<T> write_contribution(int tensor, const architecture::Place& place) {
    contributed_ = tensor;
    contribution_place_ = place;
    return tensor < 0 ? View2<T>() : gradient(tensor);
  }
  /// Values of a tensor with elements of type U, as [rows, columns].
  template <class U>
  View2<U> numbers(int tensor) const {
    return view<U>(phase_.tensors[index(tensor)], plan_.description.tensors[index(tensor)],
                   memory_.values);
  }
  /// Values of a tensor with elements of the type of sums: as [rows, columns], and as a list.
  View2<Accumulate<T>> sums(int tensor) const { return numbers<Accumulate<T>>(tensor); }
  View1<Accumulate<T>> list(int tensor) const { return flat(sums(tensor)); }
  /// Gradient of a tensor with elements of the type of sums, as a list.
  View1<Accumulate<T>> gradient_list(int tensor) const { return flat(gradient_sums(tensor)); }
  /// The same gradient as [rows, columns].
  View2<Accumulate<T>> gradient_sums(int tensor) const {
    return view<Accumulate<T>>(phase_.gradients[index(tensor)],
                               architecture::gradient_of(plan_.description, tensor),
                               memory_.value_gradients);
  }
  const architecture::RankSizes& sizes() const { return plan_.sizes; }

 private:
  static std::size_t index(int tensor) { return static_cast<std::size_t>(tensor); }

  template <class U>
  View2<U> view(const architecture::Place& place, const architecture::Tensor& tensor,
                std::byte* values) const {
    const std::int64_t columns = architecture::columns_of(tensor.columns, plan_.sizes);
    const std::int64_t stride =
        architecture::stride_of(tensor, plan_.sizes, sizeof(T), sizeof(Accumulate<T>));
    const View2<U> padded(reinterpret_cast<U*>(memory_of(place, values)),
                          static_cast<std::size_t>(architecture::rows_of(tensor.rows, plan_.sizes)),
                          static_cast<std::size_t>(stride));
    return stride == columns ? padded : first_columns(padded, columns);
  }
  std::byte* memory_of(const architecture::Place& place, std::byte* values) const {
    using Memory = architecture::Place::Memory;
    switch (place.memory) {
      case Memory::none:
      case Memory::batch:  // the values are in MicroContext::fields
        return nullptr;
      case Memory::kept:
        return memory_.kept + place.offset;
      case Memory::work:
        return memory_.work + place.offset;
      case Memory::transient:
        return transient_ + place.offset;
      case Memory::stream:
        return reinterpret_cast<std::byte*>(stream_.data());
      case Memory::output:
        return reinterpret_cast<std::byte*>(output_.data());
      case Memory::value:
        return values + place.offset;
    }
    return nullptr;
  }

  const BlockPlan& plan_;
  const architecture::PhaseProgram& phase_;
  BlockMemory memory_;
  std::byte* transient_;
  View2<T> stream_;
  View2<T> output_;
  int contributed_ = -1;
  architecture::Place contribution_place_ = {};
};

/// Arguments of an operation call.
template <class P>
struct PassArguments {
  const Handle& handle;
  const BlockValues<P>& values;
  const BlockScratch<P>& scratch;
  const MicroContext& context;
  const Decoding<P>* decoding = nullptr;  ///< null except in generation
};

}  // namespace trireme::model
