// Sizes of the storage types, and the words that decks, logs and files use for each enum.
#include <trireme/base/types.hpp>

namespace trireme {

Bytes size_of(DType type) {
  switch (type) {
    case DType::fp64:
    case DType::int64:
      return 8;
    case DType::fp32:
    case DType::int32:
    case DType::uint32:
      return 4;
    case DType::bf16:
    case DType::fp16:
    case DType::uint16:
      return 2;
    case DType::uint8:
      return 1;
  }
  return 0;
}

EnumWords enum_words(DType) {
  static constexpr auto all = words_of<DType>("fp64", "fp32", "bf16", "fp16", "int64", "int32",
                                              "uint32", "uint16", "uint8");
  return all;
}

EnumWords enum_words(Positions) {
  static constexpr auto all = words_of<Positions>("learned", "rotary", "relative");
  return all;
}

EnumWords enum_words(Gelu) {
  static constexpr auto all = words_of<Gelu>("tanh", "exact", "quick");
  return all;
}

EnumWords enum_words(StagePlacement) {
  static constexpr auto all = words_of<StagePlacement>("auto", "round_robin", "v");
  return all;
}

EnumWords enum_words(AttentionKind) {
  static constexpr auto all = words_of<AttentionKind>("auto", "portable", "tensor_cores", "cudnn");
  return all;
}

EnumWords enum_words(Axis) {
  static constexpr auto all = words_of<Axis>("data", "pipeline", "tensor", "context");
  return all;
}

}  // namespace trireme
