// Python's JSON: ", " and ": " between parts, floats as repr() writes them.
#include <trireme/data/python_json.hpp>

#include <trireme/base/check.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

namespace trireme::data {
namespace {

using Json = nlohmann::ordered_json;

/// The shortest digits that read back the same value. repr() writes an exponent below 1e-4 and from
/// 1e16 on.
std::string python_float(double value) {
  check_usage(std::abs(value) < 0x1p63, "has the number ", value,
              " in a tool or a call, beyond 64 bits; write it as a string");
  std::array<char, 64> buffer{};
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(buffer.begin(), buffer.end(), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string digits(buffer.data(), end.ptr);
  if (plain && digits.find('.') == std::string::npos) digits += ".0";
  return digits;
}

class PythonWriter {
 public:
  explicit PythonWriter(int indent) : indent_(indent) {}

  void write(const Json& value, int level) {
    if (value.is_object()) {
      write_parts(value, '{', '}', level, [&](const auto& member) {
        out_ += Json(member.key()).dump() + ": ";
        write(member.value(), level + 1);
      });
    } else if (value.is_array()) {
      write_parts(value, '[', ']', level,
                  [&](const auto& member) { write(member.value(), level + 1); });
    } else if (value.is_number_float()) {
      out_ += python_float(value.get<double>());
    } else {
      out_ += value.dump();
    }
  }
  std::string take() { return std::move(out_); }

 private:
  template <class WritePart>
  void write_parts(const Json& value, char open, char close, int level, const WritePart& part) {
    out_ += open;
    bool first = true;
    for (const auto& member : value.items()) {
      if (!first) out_ += indent_ > 0 ? "," : ", ";
      if (indent_ > 0) new_line(level + 1);
      first = false;
      part(member);
    }
    if (indent_ > 0 && !first) new_line(level);
    out_ += close;
  }
  void new_line(int level) {
    out_ += '\n';
    out_.append(static_cast<std::size_t>(indent_ * level), ' ');
  }

  int indent_;
  std::string out_;
};

}  // namespace

std::string python_json(const Json& value, int indent) {
  PythonWriter writer(indent);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace trireme::data
