// Keeps the files of an imported model, and changes their members for the trained model.
#include <trireme/hugging_face/kept_files.hpp>

#include <trireme/base/text.hpp>
#include <trireme/hugging_face/complaints.hpp>
#include <trireme/hugging_face/config_json.hpp>
#include <trireme/hugging_face/strict_json.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <filesystem>
#include <string_view>

namespace trireme::hugging_face {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kept_prefix = "hugging_face_";
constexpr const char* end_key = "eos_token_id";

/// Members of one file, in order, and the changes to them.
class Members {
 public:
  explicit Members(const std::string& content)
      : content_(content), members_(ordered_json::parse(content)) {}

  /// The value of a member of the file, or of one of its objects; null if there is none.
  json value(const std::string& name, const std::string& object = "") const {
    const ordered_json all = object.empty() ? members_ : members_.value(object, ordered_json());
    const auto found = all.find(name);
    return found == all.end() ? json() : json(*found);
  }

  void set(const std::string& name, const json& value, const std::string& object = "") {
    ordered_json& in = object.empty() ? members_ : members_[object];
    const bool there = in.contains(name);
    if (there && json(in[name]) == value) return;
    changes_.push_back(text(object.empty() ? "" : object + ".", name, " = ",
                            shortened(value.dump()),
                            there ? text(" instead of ", shortened(in[name].dump())) : ", added"));
    in[name] = value;
  }

  void remove(const std::string& name, const std::string& object = "") {
    ordered_json& in = object.empty() ? members_ : members_[object];
    if (in.erase(name) > 0)
      changes_.push_back(text(object.empty() ? "" : object + ".", name, ", removed"));
  }

  /// The file with the changes; the original bytes if there are no changes.
  UpdatedFile take() && {
    return {changes_.empty() ? content_ : members_.dump(2) + "\n", std::move(changes_)};
  }

 private:
  std::string content_;
  ordered_json members_;
  std::vector<std::string> changes_;
};

/// Adds ids to eos_token_id, which holds one id or a list of ids.
void add_end_tokens(Members& members, const std::vector<std::int64_t>& end_tokens,
                    const std::string& object = "") {
  const json before = members.value(end_key, object);
  json ids = before.is_array() ? before : before.is_null() ? json::array() : json::array({before});
  const auto known = ids.size();
  for (const std::int64_t id : end_tokens)
    if (std::ranges::find(ids, json(id)) == ids.end()) ids.push_back(id);
  if (ids.size() > known) members.set(end_key, ids.size() == 1 ? ids.front() : ids, object);
}

/// Sets the first token of a decoder with an encoder, if the file has one. −1: unchanged.
void set_start_token(Members& members, std::int64_t start_token) {
  if (start_token >= 0 && !members.value(start_key).is_null()) members.set(start_key, start_token);
}

/// Value of a key in the file: the free value if there is one, otherwise the value of the model.
json said(const ModelFile& file, const ConfigKey& key) {
  const auto free = std::ranges::find(file.free, key.path(), &FreeValue::name);
  return free == file.free.end() ? key.write(file.model) : free->value;
}

}  // namespace

bool is_of_tokenizer(const std::string& name) {
  return name != model_config_name && name != generation_config_name &&
         name != image_processor_name;
}

std::string name_in_checkpoint(const std::string& name) {
  return text(kept_prefix, name);
}

bool is_kept(const std::string& name_in_checkpoint) {
  return name_in_checkpoint.starts_with(kept_prefix);
}

std::map<std::string, std::string> files_to_keep(const std::string& folder, bool tokenizer) {
  constexpr std::int64_t most = 16 << 20;
  std::map<std::string, std::string> files;
  for (const std::string name : kept_names) {
    const std::string path = folder + "/" + name;
    std::error_code ignored;
    if ((is_of_tokenizer(name) && !tokenizer) || !std::filesystem::exists(path, ignored)) continue;
    std::string content = io::read_text_file(path, most);
    if (name == generation_config_name)
      parse_strict(content, path, {32, "the file", "; correct or remove it"});
    files[name_in_checkpoint(name)] = std::move(content);
  }
  return files;
}

UpdatedFile updated_config(const std::string& imported, const std::string& path,
                           const deck::ModelConfig& model, DType dtype,
                           const std::vector<std::int64_t>& end_tokens, std::int64_t start_token,
                           std::int64_t image_token) {
  const ModelFile file = parse_config(imported, path);
  Members members(imported);
  deck::ModelConfig ours = model;
  if (ours.positions == Positions::rotary)
    ours.sequence = std::max(ours.sequence, file.model.sequence);
  const json architectures = {file.format->model_class(ours)};
  members.set("architectures", architectures);
  for (const ConfigKey& key : file.format->keys) {
    if (!key.write || key.is_part()) continue;
    const json now = key.write(ours);
    const json before = said(file, key);
    if (now == before || (now.is_discarded() && before.is_discarded())) continue;
    if (now.is_discarded())
      members.remove(key.name, key.object);
    else
      members.set(key.name, now, key.object);
  }
  // The export writes numbers, whether the imported file had numbers or MXFP4.
  if (const std::string packed = "quantization_config"; !says_nothing(members.value(packed)))
    members.remove(packed);
  const json type = torch_name(dtype);
  const bool has_new = !members.value("dtype").is_null();
  if (has_new) members.set("dtype", type);
  if (!has_new || !members.value("torch_dtype").is_null()) members.set("torch_dtype", type);
  const bool images = model.vision.present();
  for (const char* object : {text_object, vision_object})
    for (const char* name : {"dtype", "torch_dtype"})
      if (images && !members.value(name, object).is_null()) members.set(name, type, object);
  if (model.causal()) add_end_tokens(members, end_tokens, images ? text_object : "");
  set_start_token(members, start_token);
  if (images && image_token >= 0 && image_token != file.image_token) {
    members.remove(other_image_token_key);
    members.set(image_token_key, image_token);
  }
  return std::move(members).take();
}

UpdatedFile updated_generation_config(const std::string& imported, const std::string& path,
                                      const std::vector<std::int64_t>& end_tokens,
                                      std::int64_t start_token) {
  parse_strict(imported, path, {32, "the file", ""});
  Members members(imported);
  // Without eos_token_id in this file, transformers uses the id of config.json.
  if (!members.value(end_key).is_null()) add_end_tokens(members, end_tokens);
  set_start_token(members, start_token);
  return std::move(members).take();
}

}  // namespace trireme::hugging_face
