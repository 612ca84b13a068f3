// What each kind of operation reads and writes, and what it costs.
#include <trireme/architecture/local_sizes.hpp>
#include <trireme/architecture/operation.hpp>

#include <algorithm>
#include <array>

namespace trireme::architecture {

std::int64_t rows_of(Rows rows, const LocalSizes& n) {
  return rows == Rows::own ? n.rows : n.tokens;
}

std::int64_t columns_of(Columns columns, const LocalSizes& n) {
  switch (columns) {
    case Columns::one:
      return 1;
    case Columns::hidden:
      return n.hidden;
    case Columns::heads:
      return n.heads;
    case Columns::query_key_heads:
      return n.heads + n.key_value_heads;
    case Columns::attention:
      return n.attention();
    case Columns::query_key:
      return n.attention() + n.groups();
    case Columns::query_key_value:
      return n.query_key_value();
    case Columns::feed_forward:
      return n.feed_forward;
    case Columns::inner:
      return n.inner;
  }
  return 0;
}

std::string shape_text(const Tensor& t) {
  constexpr std::array columns{"1", "D", "H", "H + Hkv", "H K", "(H + Hkv) K", "(H + 2 Hkv) K",
                               "F", "F'"};
  return std::string(t.rows == Rows::own ? "[R, " : "[T, ") +
         columns[static_cast<std::size_t>(t.columns)] + "]";
}

std::string_view name_of(OperationKind kind) {
  constexpr std::array<std::string_view, 8> names{"norm",      "head_norm",  "linear",  "rotary",
                                                  "attention", "activation", "dropout", "residual"};
  return names[static_cast<std::size_t>(kind)];
}

std::string Operation::bias() const {
  if (kind != OperationKind::linear) return "";
  const auto found = std::ranges::find(arrays, false, &ArraySpec::decay);
  return found == arrays.end() ? "" : found->name;
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
      if (pass != Pass::backward_input) read = {op.input};
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
  }
  return read;
}

std::vector<int> tensors_written(const Operation& op) {
  std::vector<int> written{op.output};
  written.insert(written.end(), op.saved.begin(), op.saved.end());
  return written;
}

bool has_pass(const Operation& op, Pass pass) {
  if (pass != Pass::backward_weight) return true;
  return op.kind == OperationKind::norm || op.kind == OperationKind::linear;
}

std::vector<Message> messages(const Operation& op, Pass pass) {
  switch (op.cut) {
    case Cut::none:
      return {};
    case Cut::outputs:  // its input is gathered again for the gradient of the weight
      return {pass == Pass::backward_input ? Message::reduce : Message::gather};
    case Cut::inputs:  // the gradient of its output stays gathered
      if (pass == Pass::backward_weight) return {};
      return {pass == Pass::forward ? Message::reduce : Message::gather};
  }
  return {};
}

double visible_tokens(const deck::ModelConfig& m) {
  const auto S = static_cast<double>(m.sequence);
  if (!m.causal()) return S;
  const auto W = static_cast<double>(m.window > 0 ? std::min(m.window, m.sequence) : m.sequence);
  return W - W * W / (2 * S);
}

double products_per_token(const Operation& op, const deck::ModelConfig& m) {
  if (op.kind == OperationKind::attention)  // with keys, and with values
    return 2 * static_cast<double>(m.heads * m.head_size()) * visible_tokens(m);
  std::int64_t elements = 0;
  for (const ArraySpec& array : op.arrays)
    if (array.decay) elements += array.elements();
  return static_cast<double>(elements);
}

double product_factor(const Operation& op, Pass pass) {
  if (op.kind == OperationKind::attention)
    return pass == Pass::forward ? 1 : pass == Pass::backward_input ? 2 : 0;
  return op.kind == OperationKind::linear ? 1 : 0;
}

}  // namespace trireme::architecture
