// Names of instructions and values, for messages and files.
#include <trireme/base/text.hpp>
#include <trireme/schedule/program.hpp>

#include <ostream>

namespace trireme::schedule {

using Kind = Value::Kind;

std::string_view name_of(Op op) {
  constexpr std::string_view names[ops] = {"forward",
                                           "evaluate",
                                           "backward",
                                           "backward_input",
                                           "backward_weight",
                                           "look_up",
                                           "logits",
                                           "evaluate_logits",
                                           "combine_logits",
                                           "logits_gradient",
                                           "look_up_gradient",
                                           "send_activation",
                                           "receive_activation",
                                           "send_gradient",
                                           "receive_gradient",
                                           "share_output",
                                           "share_gradient",
                                           "reduce_gradients",
                                           "reduce_tied",
                                           "gradient_norm",
                                           "optimizer_step",
                                           "begin_tied",
                                           "begin_norm"};
  return names[static_cast<std::size_t>(op)];
}

std::string_view name_of(Transport transport) {
  switch (transport) {
    case Transport::independent_channels:
      return "independent channels";
    case Transport::ordered_groups:
      return "ordered groups";
  }
  return "?";
}

std::string to_string(const Instr& instr) {
  std::string out = text(name_of(instr.op), " stage ", instr.stage);
  if (instr.op < Op::reduce_gradients) out += text(" micro ", instr.micro);
  return out;
}

std::ostream& operator<<(std::ostream& out, const Instr& instr) {
  return out << to_string(instr);
}

std::string to_string(const Value& v) {
  const std::string of_stage = text(" of stage ", v.stage);
  const std::string micro = text(" micro ", v.micro);
  switch (v.kind) {
    case Kind::output:
      return "the output" + of_stage + micro;
    case Kind::sent_activation:
      return "the arrival of the input" + of_stage + micro;
    case Kind::posted_activation:
      return "a posted receive of the input" + of_stage + micro;
    case Kind::saved:
      return "the saved activations" + of_stage + micro;
    case Kind::input_gradient:
      return "the input gradient" + of_stage + micro;
    case Kind::sent_gradient:
      return "the arrival of the output gradient" + of_stage + micro;
    case Kind::posted_gradient:
      return "a posted receive of the output gradient" + of_stage + micro;
    case Kind::weight_work:
      return "the input half's work" + of_stage + micro;
    case Kind::weight_gradient:
      return "the weight gradient" + of_stage + " up to" + micro;
    case Kind::reduced:
      return "the reduced gradient" + of_stage;
    case Kind::tied:
      return "the tied gradient" + of_stage;
    case Kind::norm:
      return text("the gradient norm on rank ", v.stage);
    case Kind::weights:
      return "the updated weights" + of_stage;
    case Kind::tied_part:
      return "the begin of the tied gradient's sum" + of_stage;
    case Kind::norm_part:
      return text("the begin of the gradient norm on rank ", v.stage);
    case Kind::looked_up:
      return "the embedding" + micro;
    case Kind::shared_output:
      return "the arrival of the last stage's output" + micro;
    case Kind::scores:
      return text("the statistics of the logits on rank ", v.stage) + micro;
    case Kind::statistics:
      return "the arrival of all ranks' statistics of the logits" + micro;
    case Kind::combined:
      return text("the loss on rank ", v.stage, " up to") + micro;
    case Kind::output_gradient:
      return "the gradient of the last stage's output" + micro;
    case Kind::embedding_gradient:
      return "the gradient of the embedding" + micro;
    case Kind::shared_gradient:
      return "the arrival of the embedding's gradient" + micro;
    case Kind::logits_slot:
      return text("the softmax kept on rank ", v.stage) + micro;
    case Kind::table_gradient:
      return text("the output table's gradient on rank ", v.stage, " up to") + micro;
    case Kind::look_up_sum:
      return text("the token table's gradient on rank ", v.stage, " up to") + micro;
  }
  return "?";
}

}  // namespace trireme::schedule
