#include <trireme/base/check.hpp>
#include <trireme/checkpoint/manifest.hpp>
#include <trireme/io/input_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <numeric>

namespace trireme::checkpoint {
namespace {

using Json = nlohmann::json;  // sorted keys: one text for one content

constexpr std::int64_t known_format = 1;

/// Digest of the manifest without its own; numbers are integers, so that the text is unique.
std::string own_digest(Json json) {
  json.erase("checksum");
  const std::string content = json.dump();
  return io::checksum(content.data(), content.size()).hex();
}

io::Digest digest_from(const Json& json, const std::string& path) {
  const auto digest = io::parse_digest(json.get<std::string>());
  check(digest.has_value(), path, ": '", json.get<std::string>(), "' is not a checksum");
  return *digest;
}

/// A name that stays within the folder.
std::string plain_name(const Json& json, const std::string& path) {
  auto name = json.get<std::string>();
  check(!name.empty() && name.find('/') == std::string::npos && name != "." && name != "..", path,
        ": '", name, "' is not a file name");
  return name;
}

ArrayInfo array_from(const Json& json, const std::string& path) {
  ArrayInfo array;
  array.name = json.at("name").get<std::string>();
  const auto type = json.at("dtype").get<std::string>();
  const auto dtype = parse<DType>(type);
  check(dtype.has_value(), path, ": array '", array.name, "' has the unknown type ", type);
  array.dtype = *dtype;
  array.shape = json.at("shape").get<std::vector<std::int64_t>>();
  array.shard = plain_name(json.at("shard"), path);
  return array;
}

Manifest manifest_from(const Json& json, const std::string& path) {
  Manifest manifest;
  manifest.format = json.at("format").get<std::int64_t>();
  check(manifest.format == known_format, path, ": is of format ", manifest.format,
        ", this program reads ", known_format);
  check(json.at("checksum").get<std::string>() == own_digest(json), path,
        ": is damaged (its checksum differs)");
  manifest.library = json.at("library").get<std::string>();
  manifest.step = json.at("step").get<std::int64_t>();
  manifest.samples = json.at("samples").get<std::int64_t>();
  for (const auto& file : json.at("files"))
    manifest.files.push_back({plain_name(file.at("name"), path),
                              file.at("bytes").get<std::int64_t>(),
                              digest_from(file.at("xxh3_128"), path)});
  for (const auto& array : json.at("arrays")) manifest.arrays.push_back(array_from(array, path));
  return manifest;
}

}  // namespace

std::int64_t ArrayInfo::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "[";
  for (std::size_t a = 0; a < shape.size(); ++a) out += text(a > 0 ? ", " : "", shape[a]);
  return out + "]";
}

std::string to_json(const Manifest& manifest) {
  Json json{{"format", manifest.format}, {"library", manifest.library},
            {"step", manifest.step},     {"samples", manifest.samples},
            {"files", Json::array()},    {"arrays", Json::array()}};
  for (const auto& file : manifest.files)
    json["files"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.digest.hex()}});
  for (const auto& array : manifest.arrays)
    json["arrays"].push_back({{"name", array.name},
                              {"dtype", name_of(array.dtype)},
                              {"shape", array.shape},
                              {"shard", array.shard}});
  json["checksum"] = own_digest(json);
  return json.dump(1) + "\n";
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/manifest.json";
  const std::string content = io::read_text_file(path);
  try {
    return manifest_from(Json::parse(content), path);
  } catch (const Json::exception& error) {
    throw Error(text(path, ": is damaged: ", error.what()));
  }
}

void verify_sizes(const std::string& folder, const Manifest& manifest) {
  for (const auto& info : manifest.files) {
    const io::InputFile file(folder + "/" + info.name);
    check(file.size() == info.bytes, file.path(), ": has ", file.size(), " bytes, expected ",
          info.bytes, file.size() < info.bytes ? "; the file is truncated" : "");
  }
}

void verify(const std::string& folder, const Manifest& manifest) {
  verify_sizes(folder, manifest);
  for (const auto& info : manifest.files) {
    const std::string path = folder + "/" + info.name;
    const io::Digest found = io::file_checksum(path);
    check(found == info.digest, path, ": is damaged: checksum ", found.hex(), ", expected ",
          info.digest.hex());
  }
}

}  // namespace trireme::checkpoint
