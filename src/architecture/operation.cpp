// Tensors read and written, messages and FLOPs of each kind of operation.
#include <trireme/architecture/operation.hpp>

#include <trireme/architecture/rank_sizes.hpp>
#include <trireme/base/text.hpp>

#include <algorithm>
#include <array>

namespace trireme::architecture {
// The lists below are in the order of the enumerators.

std::int64_t rows_of(Rows rows, const RankSizes& n) {
  return std::array{n.tokens, n.rows, n.targets, n.pairs, n.head_rows, n.logit_block}[at(rows)];
}

std::int64_t all_rows_of(Rows rows, const RankSizes& n) {
  return std::array{n.tokens, n.tokens, n.targets, n.pairs, n.head_rows, n.targets}[at(rows)];
}

std::int64_t rows_per_sample(Rows rows, const deck::ModelConfig& m) {
  const std::int64_t N = m.targets(), B = 1;
  return std::array{m.sequence, m.sequence, N, B, N + (m.has_sentence_head() ? B : 0), N}[at(rows)];
}

std::int64_t columns_of(Columns columns, const RankSizes& n) {
  const std::int64_t H = n.heads, Hkv = n.key_value_heads, K = n.head_size;
  return std::array<std::int64_t, 13>{1,
                                      n.hidden,
                                      H,
                                      H + Hkv,
                                      H * K,
                                      (H + Hkv) * K,
                                      n.query_key_value(),
                                      n.feed_forward,
                                      n.inner,
                                      n.vocabulary,
                                      2,
                                      3,
                                      3 * n.tensor_ranks}[at(columns)];
}

Bytes bytes_of(Numbers numbers, Bytes element, Bytes accumulate) {
  return std::array<Bytes, 4>{element, accumulate, 8, 4}[at(numbers)];
}

std::int64_t stride_of(const Tensor& t, const RankSizes& n, Bytes element, Bytes accumulate) {
  const std::int64_t columns = columns_of(t.columns, n);
  if (t.columns != Columns::vocabulary) return columns;
  const std::int64_t in_line = 64 / bytes_of(t.numbers, element, accumulate);
  return (columns + in_line - 1) / in_line * in_line;
}

Bytes bytes_of(const Tensor& t, const RankSizes& n, Bytes element, Bytes accumulate) {
  const std::int64_t elements = rows_of(t.rows, n) * stride_of(t, n, element, accumulate);
  return (elements * bytes_of(t.numbers, element, accumulate) + 63) / 64 * 64;
}

std::string shape_text(const Tensor& t) {
  constexpr auto rows = words_of<Rows>("T", "R", "N", "B", "N + B", "N'");
  constexpr auto columns = words_of<Columns>("1", "D", "H", "H + Hkv", "H K", "(H + Hkv) K",
                                             "(H + 2 Hkv) K", "F", "F'", "V", "2", "3", "3 P");
  return text("[", rows[at(t.rows)], ", ", columns[at(t.columns)], "]");
}

std::string_view name_of(OperationKind kind) {
  static constexpr auto all = words_of<OperationKind>(
      "norm", "head_norm", "linear", "rotary", "attention", "activation", "dropout", "residual",
      "embedding", "pick", "logits", "cross entropy");
  return all[at(kind)];
}

std::string Operation::bias() const {
  if (kind != OperationKind::linear && kind != OperationKind::logits) return "";
  const auto found =
      std::ranges::find_if(arrays, [](const ArraySpec& a) { return !a.decay && !a.adapter; });
  return found == arrays.end() ? "" : found->name;
}

bool Operation::trains() const {
  return std::ranges::any_of(arrays, [](const ArraySpec& a) { return !a.frozen; });
}
bool Operation::trains_product() const {
  return std::ranges::any_of(arrays,
                             [](const ArraySpec& a) { return !a.frozen && a.decay && !a.adapter; });
}
bool Operation::trains_adapter() const {
  return std::ranges::any_of(arrays, [](const ArraySpec& a) { return !a.frozen && a.adapter; });
}

std::vector<int> tensors_read(const Operation& op, Pass pass) {
  const bool forward = pass == Pass::forward;
  std::vector<int> read;
  switch (op.kind) {
    case OperationKind::norm:
      read = {op.input};
      if (!forward) read.insert(read.end(), op.saved.begin(), op.saved.end());
      return read;
    case OperationKind::head_norm:
      return forward ? std::vector{op.input} : op.saved;
    case OperationKind::linear:
      if (forward ||
          (pass == Pass::backward_weight && (op.trains_product() || op.trains_adapter())))
        read = {op.input};
      return read;
    case OperationKind::logits:
      if (pass != Pass::backward_input) read = {op.input};
      return read;
    case OperationKind::embedding:  // positions are added in place
      if (forward || (pass == Pass::backward_weight && !op.in_place())) read = {op.input};
      return read;
    case OperationKind::rotary:
    case OperationKind::dropout:
      if (forward) read = {op.input};
      return read;
    case OperationKind::attention:
      read = {op.input};
      if (!forward) read.push_back(op.output);
      if (!forward) read.insert(read.end(), op.saved.begin(), op.saved.end());
      return read;
    case OperationKind::activation:
      return {op.input};
    case OperationKind::residual:
      if (forward) read = {op.residual, op.input};
      return read;
    case OperationKind::pick:
      if (forward) read = {op.input};
      read.push_back(op.indices);
      return read;
    case OperationKind::cross_entropy:
      read = {op.input, op.indices};
      if (!forward) read.insert(read.end(), op.saved.begin(), op.saved.end());
      return read;
  }
  return read;
}

std::vector<int> tensors_written(const Operation& op) {
  std::vector<int> written{op.output};
  written.insert(written.end(), op.saved.begin(), op.saved.end());
  return written;
}

bool has_pass(const Operation& op, Pass pass) {
  if (pass == Pass::backward_input) return op.kind != OperationKind::embedding;
  if (pass == Pass::forward) return true;
  // Also with frozen arrays: the pass may recompute logits.
  if (op.kind == OperationKind::logits) return true;
  return op.trains() && (op.kind == OperationKind::norm || op.kind == OperationKind::linear ||
                         op.kind == OperationKind::embedding);
}

std::string_view name_of(Collective collective) {
  static constexpr auto all = words_of<Collective>("all-gather", "reduce-scatter", "all-reduce");
  return all[at(collective)];
}

std::optional<Message> message_of(const Operation& op, Pass pass,
                                  const std::vector<Tensor>& tensors, bool cuts_tokens) {
  if (!has_pass(op, pass)) return {};
  using enum Collective;
  const auto is_cut = [&](int t) { return cuts_tokens && tensors[at(t)].rows == Rows::own; };
  const auto gather = [&](int t) {
    return is_cut(t) ? std::optional(Message{all_gather, t}) : std::nullopt;
  };
  const auto reduce = [&](int t) { return Message{is_cut(t) ? reduce_scatter : all_reduce, t}; };
  const bool forward = pass == Pass::forward;
  if (op.kind == OperationKind::pick && forward && is_cut(op.input))
    return Message{all_reduce, op.output};  // each row is on the rank that holds its token
  if (op.kind == OperationKind::cross_entropy && op.cut != Cut::none && forward)
    return Message{all_gather, op.saved.front()};
  switch (op.kind == OperationKind::cross_entropy ? Cut::none : op.cut) {
    case Cut::none:
      break;
    case Cut::outputs:
      if (pass == Pass::backward_input) return reduce(op.input);
      // A product of a layer gathers its input again; logits may still have their gathered input.
      if (!forward && op.kind == OperationKind::logits && !op.gathers_again) break;
      if (!forward && op.kind == OperationKind::linear && tensors_read(op, pass).empty()) break;
      return gather(op.input);
    case Cut::inputs:
      if (forward) return reduce(op.output);
      // The gradient of the output is gathered for backward_input, and kept for backward_weight.
      if (pass == Pass::backward_weight && has_pass(op, Pass::backward_input)) break;
      return gather(op.output);
  }
  return {};
}

double visible_tokens(const deck::ModelConfig& m, std::int64_t window) {
  const auto S = static_cast<double>(m.sequence);
  if (!m.causal()) return S;
  const auto W = static_cast<double>(window > 0 ? std::min(window, m.sequence) : m.sequence);
  return W - W * W / (2 * S);
}

double products_per_token(const Operation& op, const deck::ModelConfig& m) {
  if (op.kind == OperationKind::attention)  // products with keys and with values
    return 2 * static_cast<double>(m.heads * m.head_size()) * visible_tokens(m, op.window);
  std::int64_t elements = 0;
  for (const ArraySpec& array : op.arrays)
    if (array.decay) elements += array.elements();
  return static_cast<double>(elements);
}

double product_factor(const Operation& op, Pass pass) {
  if (op.kind == OperationKind::attention)
    return pass == Pass::forward ? 1 : pass == Pass::backward_input ? 2 : 0;
  return op.kind == OperationKind::linear || op.kind == OperationKind::logits ? 1 : 0;
}

}  // namespace trireme::architecture
