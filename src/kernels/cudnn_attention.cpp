// cuDNN's fused attention on pointers. For each kind of call, a Plan stores a graph and the kernel
// that the library's rules chose.
#include <trireme/kernels/cudnn_attention.hpp>

#if defined(TRIREME_HAS_CUDNN)
#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>

#include <cudnn_frontend.h>

#include <map>
#include <unordered_map>

namespace trireme::kernels {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;

/// Identifiers of the tensors in a graph (UIDs).
enum : std::int64_t { queries = 1, keys, values, output, statistics, gradient, dq, dk, dv };

void expect_success(cudnnStatus_t status, const char* call) {
  check(status == CUDNN_STATUS_SUCCESS, call, ": ", cudnnGetErrorString(status));
}
void expect_success(fe::error_t error, const char* what) {
  check(error.is_good(), "cuDNN: ", what, ": ", error.get_message());
}

/// Tensor [B, heads, S, K] with identifier `number`, stored as rows [B·S, stride], head after head.
Tensor_attributes rows(const CudnnAttentionCall& c, std::int64_t number, std::int64_t heads,
                       std::int64_t stride) {
  return Tensor_attributes()
      .set_uid(number)
      .set_dim({c.batch, heads, c.sequence, c.head_size})
      .set_stride({c.sequence * stride, c.head_size, stride, 1});
}
void write_rows(const CudnnAttentionCall& c, const Tensor& t, std::int64_t number,
                std::int64_t heads, std::int64_t stride) {
  t->set_output(true)
      .set_uid(number)
      .set_dim({c.batch, heads, c.sequence, c.head_size})
      .set_stride({c.sequence * stride, c.head_size, stride, 1});
}
Tensor_attributes logsumexp(const CudnnAttentionCall& c) {
  return Tensor_attributes()
      .set_uid(statistics)
      .set_dim({c.batch, c.heads, c.sequence, 1})
      .set_stride({c.heads * c.sequence, c.sequence, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

void add_forward(fe::graph::Graph& graph, const CudnnAttentionCall& c, const Tensor& q,
                 const Tensor& k, const Tensor& v) {
  auto options = fe::graph::SDPA_attributes().set_name("forward").set_generate_stats(true);
  options.set_attn_scale(c.scale).set_causal_mask(c.causal);
  const auto [o, sums] = graph.sdpa(q, k, v, options);
  write_rows(c, o, output, c.heads, c.o_stride);
  sums->set_output(true).set_uid(statistics).set_data_type(fe::DataType_t::FLOAT);
  sums->set_dim(logsumexp(c).get_dim()).set_stride(logsumexp(c).get_stride());
}

void add_backward(fe::graph::Graph& graph, const CudnnAttentionCall& c, const Tensor& q,
                  const Tensor& k, const Tensor& v) {
  auto options = fe::graph::SDPA_backward_attributes().set_name("backward");
  options.set_attn_scale(c.scale).set_causal_mask(c.causal).set_deterministic_algorithm(true);
  const auto [q_gradient, k_gradient, v_gradient] = graph.sdpa_backward(
      q, k, v, graph.tensor(rows(c, output, c.heads, c.o_stride)),
      graph.tensor(rows(c, gradient, c.heads, c.grad_stride)), graph.tensor(logsumexp(c)), options);
  write_rows(c, q_gradient, dq, c.heads, c.dqkv_stride);
  write_rows(c, k_gradient, dk, c.key_value_heads, c.dqkv_stride);
  write_rows(c, v_gradient, dv, c.key_value_heads, c.dqkv_stride);
}

/// The graph and its kernel. Without a kernel, graph is null, and the description has the reason.
struct Plan {
  std::unique_ptr<fe::graph::Graph> graph;
  Bytes workspace = 0;
  std::string description;
};

std::string text_of(const CudnnAttentionCall& c) {
  return text(name_of(c.type), c.backward ? " backward, " : " forward, ", c.batch, " × ",
              c.sequence, " tokens, ", c.heads, " heads over ", c.key_value_heads, " of ",
              c.head_size, c.causal ? "" : ", not causal");
}

}  // namespace

struct CudnnAttention::State {
  cudnnHandle_t handle = nullptr;  ///< null if the object only plans for a described device
  std::shared_ptr<fe::DeviceProperties> device;
  int compute_capability = 0;
  std::map<CudnnAttentionCall, Plan> plans;

  Plan make_plan(const CudnnAttentionCall& c) const {
    auto graph = std::make_unique<fe::graph::Graph>();
    graph->set_io_data_type(c.type == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (device) graph->set_device_properties(device).set_sm_version(compute_capability);
    const Tensor q = graph->tensor(rows(c, queries, c.heads, c.qkv_stride));
    const Tensor k = graph->tensor(rows(c, keys, c.key_value_heads, c.qkv_stride));
    const Tensor v = graph->tensor(rows(c, values, c.key_value_heads, c.qkv_stride));
    (c.backward ? add_backward : add_forward)(*graph, c, q, k, v);
    return choose(std::move(graph), c);
  }

  const Plan& plan(const CudnnAttentionCall& c) {
    const auto found = plans.find(c);
    return found != plans.end() ? found->second : plans.emplace(c, make_plan(c)).first->second;
  }

 private:
  /// Builds the plan in steps. The plan has no graph if the library rejects a step.
  Plan choose(std::unique_ptr<fe::graph::Graph> graph, const CudnnAttentionCall& c) const {
    fe::error_t error = graph->validate();
    if (error.is_good()) error = graph->build_operation_graph(handle);
    if (error.is_good()) error = graph->create_execution_plans({fe::HeurMode_t::A});
    if (error.is_good()) error = graph->check_support(handle);
    if (error.is_good())
      error = graph->build_plans(handle, fe::BuildPlanPolicy_t::HEURISTICS_CHOICE);
    if (error.is_bad()) return {nullptr, 0, text(text_of(c), ": no kernel: ", error.get_message())};
    Plan plan;
    std::string name;
    expect_success(graph->get_workspace_size(plan.workspace), "querying a plan's workspace");
    expect_success(graph->get_plan_name(name), "querying a plan's name");
    plan.description = text(text_of(c), ": ", name, ", ", plan.workspace, " bytes");
    plan.graph = std::move(graph);
    return plan;
  }
};

bool has_cudnn() {
  return true;
}

std::string cudnn_version() {
  const std::size_t version = cudnnGetVersion();
  return text(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

CudnnAttention::CudnnAttention() : state_(std::make_unique<State>()) {
  expect_success(cudnnCreate(&state_->handle), "cudnnCreate");
}

CudnnAttention::CudnnAttention(const std::string& device, int compute_capability)
    : state_(std::make_unique<State>()) {
  state_->device = std::make_shared<fe::DeviceProperties>();
  expect_success(state_->device->deserialize({device.begin(), device.end()}),
                 "reading a device's properties");
  state_->compute_capability = compute_capability;
}

CudnnAttention::~CudnnAttention() {
  state_->plans.clear();
  if (state_->handle) (void)cudnnDestroy(state_->handle);
}

std::optional<Bytes> CudnnAttention::workspace(const CudnnAttentionCall& call) {
  const Plan& plan = state_->plan(call);
  if (!plan.graph) return std::nullopt;
  return plan.workspace;
}

bool CudnnAttention::run(const CudnnAttentionCall& call, const CudnnAttentionArrays& arrays,
                         void* workspace, Bytes bytes, void* stream) {
  const Plan& plan = state_->plan(call);
  if (!plan.graph || plan.workspace > bytes) return false;
  expect_success(cudnnSetStream(state_->handle, static_cast<cudaStream_t>(stream)),
                 "cudnnSetStream");
  constexpr std::int64_t element = 2;
  const auto part = [](const void* array, std::int64_t elements) -> void* {
    return const_cast<char*>(static_cast<const char*>(array)) + element * elements;
  };
  const std::int64_t q_columns = call.heads * call.head_size;
  const std::int64_t k_columns = call.key_value_heads * call.head_size;
  std::unordered_map<std::int64_t, void*> of{{queries, part(arrays.qkv, 0)},
                                             {keys, part(arrays.qkv, q_columns)},
                                             {values, part(arrays.qkv, q_columns + k_columns)},
                                             {output, arrays.o},
                                             {statistics, arrays.logsumexp}};
  if (call.backward) {
    of[gradient] = part(arrays.grad, 0);
    of[dq] = arrays.dqkv;
    of[dk] = part(arrays.dqkv, q_columns);
    of[dv] = part(arrays.dqkv, q_columns + k_columns);
  }
  expect_success(plan.graph->execute(state_->handle, of, workspace), "attention");
  return true;
}

std::vector<std::string> CudnnAttention::choices() const {
  std::vector<std::string> lines;
  for (const auto& [call, plan] : state_->plans) lines.push_back(plan.description);
  return lines;
}

}  // namespace trireme::kernels
#endif
