// Lowers the head: forward calls up to the losses, backward calls from the losses, and the places
// of tensors and gradients. The first operations are norms of the head's input and of values.
#include <trireme/architecture/block_program.hpp>

#include <trireme/architecture/ends.hpp>

#include <algorithm>

namespace trireme::architecture {
namespace {

/// Whether one call computes both operations: logits and their cross entropy by blocks of rows, or
/// a product and the GELU of its output.
bool fuses(const Operation& before, const Operation& op) {
  return (before.kind == OperationKind::logits && op.kind == OperationKind::cross_entropy) ||
         (before.kind == OperationKind::linear && op.kind == OperationKind::activation &&
          before.output == op.input() && op.name == name_of(Activation::gelu));
}

std::vector<OperationCall> forward_calls(const std::vector<Operation>& operations) {
  std::vector<OperationCall> calls;
  for (std::size_t i = 0; i < operations.size(); ++i)
    if (i > 0 && fuses(operations[i - 1], operations[i]))
      calls.back().fused = static_cast<int>(i);
    else
      calls.push_back({static_cast<int>(i), Pass::forward});
  return calls;
}

/// The backward calls of the operations [begin, end). Cross entropies have none, because their
/// gradients are computed with the losses. Logits compute both gradients in one call.
std::vector<OperationCall> backward_calls(const std::vector<Operation>& operations,
                                          std::size_t begin, std::size_t end) {
  std::vector<OperationCall> calls;
  for (std::size_t i = end; i-- > begin;) {
    const Operation& op = operations[i];
    const auto number = static_cast<int>(i);
    if (op.kind == OperationKind::cross_entropy) continue;
    if (op.kind == OperationKind::logits) {
      calls.push_back({number, Pass::backward_input, number + 1});
      continue;
    }
    for (const Pass pass : {Pass::backward_weight, Pass::backward_input})
      if (has_pass(op, pass)) calls.push_back({number, pass});
  }
  return calls;
}

/// Adds the gradients of values to their sums.
void accumulate_values(const BlockDescription& head, std::vector<OperationCall>& calls) {
  for (OperationCall& call : calls) {
    const int input = head.operations[at(call.operation)].input();
    if (call.pass == Pass::backward_input && head.tensors[at(input)].home == Home::value)
      call.sum = input;
  }
}

/// Number of the norms of the head's input and of values, which are the first operations.
std::size_t first_norms(const BlockDescription& head) {
  const auto other = std::ranges::find_if(
      head.operations, [](const Operation& op) { return op.kind != OperationKind::norm; });
  return static_cast<std::size_t>(other - head.operations.begin());
}

std::vector<Place> places_of_gradients(const BlockDescription& head,
                                       const std::vector<Place>& tensors) {
  std::vector<Place> gradients = tensors;
  const auto own = [&](int tensor) {
    return std::ranges::find(head.tensors, "d" + head.tensors[at(tensor)].name, &Tensor::name);
  };
  for (std::size_t t = 0; t < tensors.size(); ++t)
    if (const auto found = own(static_cast<int>(t)); found != head.tensors.end())
      gradients[t] = tensors[static_cast<std::size_t>(found - head.tensors.begin())];
  for (std::size_t i = head.operations.size(); i-- > 0;) {
    const Operation& op = head.operations[i];
    if (i < first_norms(head)) {
      if (head.tensors[at(op.input())].home != Home::value)
        gradients[at(op.input())] = {Place::Memory::stream, 0};
    } else if (!op.in_place() && own(op.input()) == head.tensors.end() &&
               std::ranges::count(tensors_read(op, Pass::backward_input), op.input()) > 0) {
      gradients[at(op.input())] = gradients[at(op.output)];
    }
  }
  return gradients;
}

}  // namespace

BlockProgram lower_head(const BlockDescription& head, const RankSizes& sizes, Bytes element,
                        Bytes accumulate) {
  BlockProgram program;
  std::vector<Place> tensors;
  for (const Tensor& t : head.tensors) {
    Place& place = tensors.emplace_back();
    if (t.home == Home::batch) place.memory = Place::Memory::batch;
    if (t.home == Home::value)
      place = {Place::Memory::value, value_offset(t.value, sizes, element, accumulate, t.module)};
    if (t.home != Home::slot && t.home != Home::scratch) continue;
    if (shares_memory(head, t, element, accumulate)) {
      place = tensors[at(t.stored_in)];
      continue;
    }
    const bool kept = t.home == Home::slot;
    Bytes& used = kept ? program.kept_bytes : program.transient_bytes;
    place = {kept ? Place::Memory::kept : Place::Memory::transient, used};
    used += bytes_of(t, sizes, element, accumulate);
  }
  const std::vector<Place> gradients = places_of_gradients(head, tensors);
  const auto phase = [&](std::vector<OperationCall> calls) {
    return PhaseProgram{std::move(calls), tensors, gradients, program.transient_bytes};
  };
  const std::vector<Operation>& operations = head.operations;
  program.forward = phase(forward_calls(operations));
  const std::size_t norms = first_norms(head);
  std::vector<OperationCall> of_losses = backward_calls(operations, norms, operations.size());
  // Logits of several tokens do not depend on one another: the gradient of their table is summed in
  // the order of the forward pass, as with HeadGradient::with_losses.
  const bool only_logits = std::ranges::all_of(of_losses, [&](const OperationCall& call) {
    return operations[at(call.operation)].kind == OperationKind::logits;
  });
  if (only_logits) std::ranges::reverse(of_losses);
  program.losses = phase(std::move(of_losses));
  std::vector<OperationCall> of_norms = backward_calls(operations, 0, norms);
  accumulate_values(head, of_norms);
  program.backward = phase(std::move(of_norms));
  program.backward_input = program.backward;
  program.backward_weight = program.backward;
  const auto only = [](PhaseProgram& of, Pass pass) {
    std::erase_if(of.calls, [pass](const OperationCall& call) { return call.pass != pass; });
  };
  only(program.backward_input, Pass::backward_input);
  only(program.backward_weight, Pass::backward_weight);
  return program;
}

}  // namespace trireme::architecture
