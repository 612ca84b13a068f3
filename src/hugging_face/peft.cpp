// Reads, compares and writes PEFT's adapters. A linear layer with adapters has an A of one piece,
// and a B with a piece for each piece of the weights.
#include <trireme/hugging_face/peft.hpp>

#include <trireme/architecture/adapter.hpp>
#include <trireme/architecture/architecture.hpp>
#include <trireme/base/check.hpp>
#include <trireme/hugging_face/config_key.hpp>
#include <trireme/hugging_face/convert.hpp>
#include <trireme/hugging_face/strict_json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace trireme::hugging_face {
namespace {

using architecture::ArraySpec;

constexpr std::string_view weight_suffix = ".weight";
constexpr std::string_view peft_prefix = "base_model.model.";

/// An array of a layer: "encoder.layers.3." and "attention.query" of part "encoder".
struct LayerArray {
  std::string prefix, product;
  std::string_view part;  ///< word of [adapter] parts; "" for arrays of no layer
};

LayerArray split_name(const std::string& array) {
  for (const std::string_view part : {"layers", "encoder", "vision"}) {
    const std::string start = part == "layers" ? "layers." : text(part, ".layers.");
    if (!array.starts_with(start)) continue;
    const std::size_t dot = array.find('.', start.size());
    return {array.substr(0, dot + 1), array.substr(dot + 1), part};
  }
  return {};
}

bool is_attention_input(const std::string& product) {
  return product == "attention.query" || product == "attention.key_value";
}

/// The target of [adapter] that covers an array; "" if there is none.
std::string target_of(const deck::AdapterConfig& adapter, const LayerArray& array) {
  const std::string& product = array.product;
  if (!adapter.adapts(array.part)) return "";
  if (is_attention_input(product) && adapter.targets_product(architecture::fused_target))
    return architecture::fused_target;
  return adapter.targets_product(product) ? product : "";
}

/// Name of the linear layer of a tensor with adapters, such as "model.layers.0.self_attn.q_proj".
std::string module_of(const Tensor& tensor) {
  return tensor.name.substr(0, tensor.name.size() - weight_suffix.size());
}

/// Name of the linear layer in transformers' model. Its files have other names for the parts of a
/// model that sees images (transformers 4.52 and later).
std::string module_in_model(const std::string& module, const deck::ModelConfig& m) {
  constexpr std::string_view language = "language_model.", model = "language_model.model.";
  if (!m.vision.present()) return module;
  if (module.starts_with(model)) return text("model.", language, module.substr(model.size()));
  if (module.starts_with(language)) return module.substr(language.size());
  return text("model.", module);
}

/// Whether the tensor is a matrix and at least one of its arrays has an adapter.
bool is_adapted(const Tensor& tensor, const deck::AdapterConfig& adapter) {
  if (tensor.shape.size() != 2 || !tensor.name.ends_with(weight_suffix)) return false;
  return std::ranges::any_of(tensor.pieces, [&](const Piece& piece) {
    return !target_of(adapter, split_name(piece.array)).empty();
  });
}

/// Name of a linear layer in PEFT's target_modules: its last word, or its last two words if layers
/// with the same last word differ in the word before.
std::string target_module(const std::string& module, const std::vector<Tensor>& tensors) {
  const auto words = [](const std::string& name, int count) {
    std::size_t at = name.size();
    for (int i = 0; i < count && at != std::string::npos && at > 0; ++i)
      at = name.rfind('.', at - 1);
    return name.substr(at + 1);
  };
  std::set<std::string> with_same_end;
  for (const Tensor& tensor : tensors)
    if (tensor.name.ends_with(weight_suffix) && words(module_of(tensor), 1) == words(module, 1))
      with_same_end.insert(words(module_of(tensor), 2));
  return words(module, with_same_end.size() > 1 ? 2 : 1);
}

/// PEFT's target_modules: last words of names, or the names of all layers if other layers than
/// those with adapters end with the same words.
struct TargetModules {
  std::set<std::string> names;
  std::set<std::string> patterns;  ///< regular expressions for whole names
  bool ambiguous = false;

  json value() const {
    if (!ambiguous) return json(names);
    std::string all;
    for (const std::string& pattern : patterns) all += (all.empty() ? "" : "|") + pattern;
    return json(all);
  }
};

/// A regular expression for the name in all layers: numbers are \d+.
std::string pattern_of(const std::string& module) {
  std::string pattern;
  for (std::size_t i = 0; i < module.size(); ++i) {
    if (module[i] >= '0' && module[i] <= '9' && i > 0 && module[i - 1] == '.') {
      while (i + 1 < module.size() && module[i + 1] != '.') ++i;
      pattern += "\\d+";
    } else {
      pattern += module[i] == '.' ? "\\." : std::string(1, module[i]);
    }
  }
  return pattern;
}

TargetModules target_modules(const deck::ModelConfig& m) {
  const auto tensors = format_of(m).tensors(m);
  TargetModules targets;
  for (const Tensor& tensor : tensors)
    if (is_adapted(tensor, m.adapter)) {
      targets.names.insert(target_module(module_of(tensor), tensors));
      targets.patterns.insert(pattern_of(module_in_model(module_of(tensor), m)));
    }
  for (const Tensor& tensor : tensors) {
    const std::string& name = tensor.name;
    if (tensor.shape.size() == 2 && name.ends_with(weight_suffix) && !is_adapted(tensor, m.adapter))
      for (const std::string& target : targets.names)
        targets.ambiguous = targets.ambiguous || module_of(tensor).ends_with("." + target);
  }
  return targets;
}

/// Scales a row to the norm `magnitude`. A row of zeros has no direction and remains zero.
void scale_row(std::vector<double>& row, double magnitude) {
  double square = 0;
  for (const double x : row) square += x * x;
  const double scale = square > 0 ? magnitude / std::sqrt(square) : 0;
  for (double& x : row) x *= scale;
}

}  // namespace

std::string adapter_name_today(const std::string& name, const Format& format,
                               const deck::ModelConfig& m) {
  const std::size_t end = name.rfind(".lora_");
  if (!name.starts_with(peft_prefix) || end == name.npos || end < peft_prefix.size()) return name;
  const std::string module = name.substr(peft_prefix.size(), end - peft_prefix.size());
  const std::string today = format.today(text(module, weight_suffix), m);
  if (today.empty()) return "";
  if (!today.ends_with(weight_suffix)) return name;
  const std::string current = today.substr(0, today.size() - weight_suffix.size());
  return text(peft_prefix, module_in_model(current, m), name.substr(end));
}

std::vector<Tensor> adapter_tensors(const Format& format, const deck::ModelConfig& m) {
  std::vector<Tensor> out;
  const std::int64_t r = m.adapter.rank;
  for (const Tensor& tensor : format.tensors(m)) {
    if (!is_adapted(tensor, m.adapter)) continue;
    const std::string name = std::string(peft_prefix) + module_in_model(module_of(tensor), m);
    const std::size_t in = tensor.place_of(1);
    Tensor a{name + ".lora_A.weight", {r, tensor.shape[in]}, {}};
    Tensor b{name + ".lora_B.weight", {tensor.shape[1 - in], r}, {}};
    Tensor magnitudes{name + ".lora_magnitude_vector", {tensor.shape[1 - in]}, {}};
    for (const Piece& piece : tensor.pieces) {
      const LayerArray array = split_name(piece.array);
      const std::string target = target_of(m.adapter, array);
      const bool fused = target == architecture::fused_target;
      const Piece down{array.prefix + target + std::string(architecture::adapter_a),
                       fused ? Extents() : piece.place};
      if (a.pieces.empty()) a.pieces.push_back(down);
      check_usage(!target.empty() && a.pieces.front().array == down.array,
                  "PEFT has one A for the layer ", module_of(tensor), ", which is made of ",
                  tensor.pieces.front().array, " and ", tensor.pieces.back().array,
                  "; choose the target \"", architecture::fused_target, "\" in [adapter] targets");
      b.pieces.push_back({piece.array + std::string(architecture::adapter_b), piece.place});
      magnitudes.pieces.push_back(
          {piece.array + std::string(architecture::adapter_m), piece.place});
    }
    out.push_back(std::move(a));
    out.push_back(std::move(b));
    if (architecture::has_magnitudes(m.adapter)) out.push_back(std::move(magnitudes));
  }
  return out;
}

std::string adapter_config_text(const deck::ModelConfig& m, const std::string& base) {
  const deck::AdapterConfig& a = m.adapter;
  const auto whole = static_cast<std::int64_t>(a.alpha);
  json config{{"peft_type", "LORA"},
              {"task_type", m.encoder.present() ? "SEQ_2_SEQ_LM" : "CAUSAL_LM"},
              {"base_model_name_or_path", base.empty() ? json() : json(base)},
              {"r", a.rank},
              {"lora_dropout", a.dropout},
              {"target_modules", target_modules(m).value()},
              {"bias", "none"},
              {"fan_in_fan_out", m.family == Family::gpt},
              {"use_rslora", a.scaling == AdapterScaling::rslora},
              {"use_dora", architecture::has_magnitudes(a)},
              {"init_lora_weights", true},
              {"inference_mode", true}};
  if (static_cast<double>(whole) == a.alpha)
    config["lora_alpha"] = whole;
  else
    config["lora_alpha"] = a.alpha;
  return config.dump(2) + "\n";
}

namespace {

/// Members of PEFT's LoraConfig that do not change the results of stored adapters.
constexpr std::array harmless{"auto_mapping",   "base_model_name_or_path",
                              "corda_config",   "ensure_weight_tying",
                              "eva_config",     "fan_in_fan_out",
                              "inference_mode", "loftq_config",
                              "lora_dropout",   "lora_ga_config",
                              "megatron_core",  "monteclora_config",
                              "peft_version",   "qalora_group_size",
                              "revision",       "runtime_config",
                              "task_type",      "velora_config"};

/// Members that expect_plain_adapter or expect_same_adapter checks.
constexpr std::array compared{"init_lora_weights", "lora_alpha", "peft_type", "r",
                              "target_modules",    "use_dora",   "use_rslora"};

/// A member that must be null, false or empty (`bias`: also "none"), and the reason.
struct OtherAdapter {
  const char* name;
  const char* reason;
};

constexpr OtherAdapter other_adapters[]{
    {"alora_invocation_tokens", "the adapters act only on tokens after these"},
    {"alpha_pattern", "Trireme has one alpha for all layers"},
    {"arrow_config", "a router mixes several adapters"},
    {"bias", "Trireme does not read trained biases"},
    {"exclude_modules", "Trireme's targets cover all layers"},
    {"kasa_config", "PEFT removes singular values of the base weights"},
    {"layer_replication", "PEFT repeats layers of the base model"},
    {"layers_pattern", "Trireme's targets cover all layers"},
    {"layers_to_transform", "Trireme's targets cover all layers"},
    {"lora_bias", "Trireme's B has no bias"},
    {"megatron_config", "Trireme reads adapters of transformers' layers"},
    {"modules_to_save", "Trireme does not read other trained weights"},
    {"rank_pattern", "Trireme has one rank for all layers"},
    {"target_parameters", "Trireme reads adapters of linear layers"},
    {"trainable_token_indices", "Trireme does not read trained rows of the embedding"},
    {"use_bdlora", "A or B is block-diagonal"},
    {"use_qalora", "A reads sums of groups of inputs"}};

/// Why PEFT's base weights may differ from the model's files; "" if they are equal. `initial`:
/// value of init_lora_weights.
std::string change_of_base(const json& initial) {
  if (initial.is_null() || initial.is_boolean()) return "";
  const std::string word = initial.is_string() ? lower_case(initial.get<std::string>()) : "";
  constexpr std::array kept{"eva", "gaussian", "mica", "orthogonal"};
  if (std::ranges::find(kept, word) != kept.end()) return "";
  constexpr const char* convert =
      "; save the adapter again with PEFT's path_initial_model_for_weight_conversion, which makes "
      "it a plain LoRA";
  if (word.starts_with("pissa") || word.starts_with("corda") || word == "olora")
    return text("PEFT subtracts the first B A from the base weights", convert);
  if (word == "lora_ga")
    return text("the training subtracted the first B A from the base weights", convert);
  if (word == "loftq")
    return "PEFT quantizes the base weights; import the model that its merge_and_unload() makes";
  return "Trireme does not know whether these initial values change the base weights";
}

/// Throws UsageError unless the adapters add factor · B A to the base weights of the model's files.
void expect_plain_adapter(const json& file, const std::string& path) {
  Complaints complaints;
  const auto refuse = [&](const std::string& name, const json& value, const auto& reason) {
    complaints.add(name, " = ", shortened(value.dump()), ": ", reason);
  };
  for (const auto& [name, value] : file.items()) {
    const auto other = std::ranges::find(other_adapters, name, &OtherAdapter::name);
    const bool known = std::ranges::find(harmless, name) != harmless.end() ||
                       std::ranges::find(compared, name) != compared.end();
    if (name == "init_lora_weights") {
      if (const std::string reason = change_of_base(value); !reason.empty())
        refuse(name, value, reason);
    } else if (known || says_nothing(value) || (name == "bias" && value == "none")) {
      continue;
    } else if (other != std::end(other_adapters)) {
      refuse(name, value, other->reason);
    } else {
      refuse(name, value, "Trireme does not know this member");
    }
  }
  complaints.raise(text(path, ": describes an adapter that Trireme does not support"),
                   "such an adapter cannot be imported; remove a member only if PEFT computes the "
                   "same without it");
}

}  // namespace

std::vector<std::string> expect_same_adapter(const std::string& content, const std::string& path,
                                             const deck::Deck& deck) {
  const json file = parse_strict(content, path, {8, "the configuration", "; copy the file again"});
  const deck::ModelConfig& m = deck.config.model;
  const deck::AdapterConfig& a = m.adapter;
  Complaints complaints;
  const auto value = [&](const char* key, json otherwise) {
    const auto found = file.find(key);
    return found == file.end() || found->is_null() ? otherwise : *found;
  };
  const json kind = value("peft_type", "LORA");
  check_usage(kind == "LORA", path, ": has peft_type = ", shortened(kind.dump()),
              ", and Trireme reads \"LORA\" only; import the model that PEFT's merge_and_unload() "
              "makes");
  expect_plain_adapter(file, path);
  const auto expect = [&](const char* key, const json& otherwise, const json& wanted,
                          const std::string& ours) {
    if (const json found = value(key, otherwise); found != wanted)
      complaints.add(key, " = ", shortened(found.dump()), ", but ", ours);
  };
  expect("r", 8, a.rank, deck.cite("adapter", "rank"));
  expect("lora_alpha", 8, a.alpha, deck.cite("adapter", "alpha"));
  expect("use_rslora", false, a.scaling == AdapterScaling::rslora, deck.cite("adapter", "scaling"));
  expect("use_dora", false, architecture::has_magnitudes(a), deck.cite("adapter", "kind"));
  if (const json targets = value("target_modules", json()); targets.is_array()) {
    // A file and Trireme may name a layer by different numbers of its last words.
    const auto same = [](const std::string& x, const std::string& y) {
      return x == y || x.ends_with("." + y) || y.ends_with("." + x);
    };
    const std::set<std::string> ours = target_modules(m).names;
    bool equal = true;
    for (const json& theirs : targets)
      equal = equal && theirs.is_string() && std::ranges::any_of(ours, [&](const std::string& o) {
                return same(o, theirs.get<std::string>());
              });
    for (const std::string& o : ours)
      equal = equal && std::ranges::any_of(targets, [&](const json& theirs) {
                return theirs.is_string() && same(o, theirs.get<std::string>());
              });
    if (!equal)
      complaints.add("target_modules = ", shortened(targets.dump()), ", but ",
                     deck.cite("adapter", "targets"), " are ", json(ours).dump());
  }
  complaints.raise(text(path, " is another adapter than ", deck.file_name, " describes"),
                   "change [adapter], or give the adapter that it describes");
  const json dropped = value("lora_dropout", 0);
  if (dropped == a.dropout) return {};
  return {text(path, " has lora_dropout = ", shortened(dropped.dump()), "; training uses ",
               deck.cite("adapter", "dropout"))};
}

Merger::Merger(const checkpoint::Reader& reader, const deck::ModelConfig& model, DType type)
    : reader_(reader), model_(model), type_(type), specs_(architecture::arrays_by_name(model)) {}

/// Block `block` of an array that consists of `blocks` equal blocks, as double.
std::vector<double> Merger::read(const ArraySpec& spec, std::int64_t block,
                                 std::int64_t blocks) const {
  checkpoint::Extents offset(spec.shape.size(), 0), extent = spec.shape;
  if (blocks > 1) {
    offset.front() = block;
    extent.front() = 1;
  }
  const std::int64_t n = checkpoint::volume(extent);
  std::vector<char> stored(static_cast<std::size_t>(n * size_of(type_)));
  reader_.read_slice(spec.name, type_, spec.shape, offset, extent, stored.data());
  std::vector<double> numbers(static_cast<std::size_t>(n));
  convert(type_, stored.data(), DType::fp64, numbers.data(), n);
  return numbers;
}

/// W[i, j] += factor Σ_k B[i, k] A[k, j]. With magnitudes, W[i] is then multiplied by m[i] /
/// ‖W[i]‖.
void Merger::add_update(const Piece& piece, char* numbers) const {
  const LayerArray array = split_name(piece.array);
  const std::string target = target_of(model_.adapter, array);
  if (target.empty()) return;
  const ArraySpec& down = specs_.at(array.prefix + target + std::string(architecture::adapter_a));
  const ArraySpec& up = specs_.at(piece.array + std::string(architecture::adapter_b));
  const bool part = !piece.place.empty();
  const std::int64_t block = part ? piece.place.front() : 0;
  const std::int64_t r = model_.adapter.rank;
  // A whole array of keys and values has two blocks of B, and one or two blocks of A.
  const bool fused = target == architecture::fused_target;
  const std::vector<double> a = read(down, block, part && !fused ? 2 : 1);
  const std::vector<double> b = read(up, block, part ? 2 : 1);
  const std::int64_t columns = specs_.at(piece.array).elements() / (up.elements() / r);
  const std::int64_t rows = std::ssize(b) / r;
  const std::int64_t rows_of_a = rows * r * columns / std::ssize(a);
  const double factor = model_.adapter.factor();
  std::vector<double> m;
  if (architecture::has_magnitudes(model_.adapter))
    m = read(specs_.at(piece.array + std::string(architecture::adapter_m)), block, part ? 2 : 1);
  std::vector<double> row(static_cast<std::size_t>(columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    char* at = numbers + i * columns * size_of(type_);
    convert(type_, at, DType::fp64, row.data(), columns);
    for (std::int64_t k = 0; k < r; ++k) {
      const double by = factor * b[static_cast<std::size_t>(i * r + k)];
      const double* from = a.data() + (i / rows_of_a * r + k) * columns;
      for (std::size_t j = 0; j < row.size(); ++j) row[j] += by * from[j];
    }
    if (!m.empty()) scale_row(row, m[static_cast<std::size_t>(i)]);
    convert(DType::fp64, row.data(), type_, at, columns);
  }
}

}  // namespace trireme::hugging_face
