#include <trireme/base/check.hpp>
#include <trireme/exchange/gpt2.hpp>

#include <algorithm>
#include <cstring>
#include <set>

namespace trireme::exchange {
namespace {

constexpr std::string_view prefix = "transformer.";
constexpr const char* head = "lm_head.weight";

/// The file's name for a tensor: as it is, or without the prefix.
const TensorInfo* find(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* found = file.find(name);
  if (found == nullptr && name.starts_with(prefix)) found = file.find(name.substr(prefix.size()));
  return found;
}

/// "h.3.attn.bias": the causal mask, which old files hold as a tensor.
bool is_mask(std::string_view name) {
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  if (!name.starts_with("h.")) return false;
  name.remove_prefix(2);
  const auto digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos) return false;
  name.remove_prefix(digits);
  return name == ".attn.bias" || name == ".attn.masked_bias";
}

std::string described(const TensorInfo& tensor) {
  return text(tensor.type, " ", checkpoint::shape_text(tensor.shape));
}

/// Lines of an error: what is wrong with a file, of which a wrong number of layers makes many.
class Complaints {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    if (++number_ <= most) lines_ += text("\n  ", parts...);
  }
  void raise(const std::string& path) const {
    if (number_ == 0) return;
    const std::string more = number_ > most ? text("\n  and ", number_ - most, " more") : "";
    throw UsageError(text(path, ": is not the model that its config.json describes:", lines_, more,
                          "\nexpected the tensors of a GPT2LMHeadModel"));
  }

 private:
  static constexpr int most = 20;
  int number_ = 0;
  std::string lines_;
};

/// What a tied model's own lm_head.weight must be.
void expect_tied(const SafetensorsFile& file, const TensorInfo& output, const TensorInfo& table,
                 Complaints& complaints) {
  if (output.type != table.type || output.shape != table.shape)
    return complaints.add(head, " is ", described(output), ", ", table.name, " is ",
                          described(table), ", though embeddings are tied");
  constexpr std::int64_t most = 1 << 20;
  std::vector<char> a(static_cast<std::size_t>(std::min(most, table.bytes)));
  std::vector<char> b(a.size());
  for (std::int64_t at = 0; at < table.bytes; at += most) {
    const std::int64_t bytes = std::min(most, table.bytes - at);
    file.read(output, at, bytes, a.data());
    file.read(table, at, bytes, b.data());
    if (std::memcmp(a.data(), b.data(), static_cast<std::size_t>(bytes)) != 0)
      return complaints.add(head, " is not equal to ", table.name,
                            ", though embeddings are tied; if they are not, config.json must say ",
                            "\"tie_word_embeddings\": false");
  }
}

}  // namespace

std::vector<Gpt2Tensor> gpt2_tensors(const deck::ModelConfig& m) {
  const std::int64_t D = m.hidden;
  const std::int64_t F = m.feed_forward;
  std::vector<Gpt2Tensor> out;
  out.push_back({"transformer.wte.weight", {m.vocabulary, D}, {"embedding.token"}});
  out.push_back({"transformer.wpe.weight", {m.sequence, D}, {"embedding.position"}});
  for (std::int64_t layer = 0; layer < m.layers; ++layer) {
    const std::string theirs = text("transformer.h.", layer, ".");
    const std::string ours = text("layers.", layer, ".");
    const auto add = [&](const char* name, Extents shape, const std::vector<const char*>& arrays,
                         bool transposed = false) {
      out.push_back({theirs + name, std::move(shape), {}, transposed});
      for (const char* array : arrays) out.back().arrays.push_back(ours + array);
    };
    add("ln_1.weight", {D}, {"attention_norm.gain"});
    add("ln_1.bias", {D}, {"attention_norm.bias"});
    add("attn.c_attn.weight", {D, 3 * D}, {"attention.query", "attention.key_value"}, true);
    add("attn.c_attn.bias", {3 * D}, {"attention.query_bias", "attention.key_value_bias"});
    add("attn.c_proj.weight", {D, D}, {"attention.output"}, true);
    add("attn.c_proj.bias", {D}, {"attention.output_bias"});
    add("ln_2.weight", {D}, {"feed_forward_norm.gain"});
    add("ln_2.bias", {D}, {"feed_forward_norm.bias"});
    add("mlp.c_fc.weight", {D, F}, {"feed_forward.up"}, true);
    add("mlp.c_fc.bias", {F}, {"feed_forward.up_bias"});
    add("mlp.c_proj.weight", {F, D}, {"feed_forward.down"}, true);
    add("mlp.c_proj.bias", {D}, {"feed_forward.down_bias"});
  }
  out.push_back({"transformer.ln_f.weight", {D}, {"final_norm.gain"}});
  out.push_back({"transformer.ln_f.bias", {D}, {"final_norm.bias"}});
  if (!m.tied_embeddings) out.push_back({head, {m.vocabulary, D}, {"output.weight"}});
  return out;
}

std::vector<TensorInfo> match_gpt2(const SafetensorsFile& file, const deck::ModelConfig& model) {
  Complaints complaints;
  std::vector<TensorInfo> matched;
  std::set<std::string> used;
  for (const Gpt2Tensor& wanted : gpt2_tensors(model)) {
    const TensorInfo* found = find(file, wanted.name);
    if (found == nullptr) {
      complaints.add(wanted.name, " is missing");
      continue;
    }
    used.insert(found->name);
    if (found->shape != wanted.shape || !found->dtype())
      complaints.add(found->name, " is ", described(*found), ", expected F64, F32, BF16 or F16 ",
                     checkpoint::shape_text(wanted.shape));
    matched.push_back(*found);
  }
  for (const TensorInfo& tensor : file.tensors()) {
    if (used.contains(tensor.name) || is_mask(tensor.name)) continue;
    const TensorInfo* table = find(file, "transformer.wte.weight");
    if (model.tied_embeddings && tensor.name == head && table != nullptr)
      expect_tied(file, tensor, *table, complaints);
    else
      complaints.add(tensor.name, ", ", described(tensor), ", is left over");
  }
  complaints.raise(file.path());
  return matched;
}

}  // namespace trireme::exchange
