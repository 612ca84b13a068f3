#include <trireme/base/text.hpp>
#include <trireme/schedule/draw.hpp>

namespace trireme::schedule {
namespace {

/// A JSON string (RFC 8259, section 7). Bytes beyond ASCII are UTF-8 already.
std::string in_quotes(std::string_view raw) {
  constexpr std::string_view hex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : raw) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += hex[byte >> 4];
      out += hex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

class Trace {
 public:
  void add(const Timeline& t, const std::string& name, double microseconds) {
    ++process_;
    metadata("process_name", 0, name);
    for (Rank r = 0; r < t.layout.ranks; ++r) metadata("thread_name", r, text("rank ", r));
    for (const Event& e : t.events) {
      const double begin = e.begin * microseconds;
      const double end = e.end * microseconds;
      if (is_receive(e.instr.op)) {
        // Asynchronous, because it may overlap computations and transfers of its rank, which slices
        // of one track may not.
        ++transfer_;
        slice("b", e, begin, text(",\"id\":", transfer_));
        slice("e", e, end, text(",\"id\":", transfer_));
      } else if (!is_send(e.instr.op)) {
        slice("X", e, begin, text(",\"dur\":", end - begin));
      }
    }
  }
  std::string json() const {
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + events_ + "\n]}\n";
  }

 private:
  void append(const std::string& event) {
    if (!events_.empty()) events_ += ",\n";
    events_ += event;
  }
  void metadata(std::string_view what, Rank thread, const std::string& name) {
    append(text("{\"name\":\"", what, "\",\"ph\":\"M\",\"pid\":", process_, ",\"tid\":", thread,
                ",\"args\":{\"name\":", in_quotes(name), "}}"));
  }
  void slice(std::string_view phase, const Event& e, double at, const std::string& more) {
    append(text("{\"name\":", in_quotes(to_string(e.instr)), ",\"cat\":",
                in_quotes(name_of(e.instr.op)), ",\"ph\":\"", phase, "\",\"pid\":", process_,
                ",\"tid\":", e.rank, ",\"ts\":", at, more, ",\"args\":{\"stage\":", e.instr.stage,
                ",\"micro\":", e.instr.micro, ",\"position\":", e.position, "}}"));
  }

  std::string events_;
  int process_ = 0;
  int transfer_ = 0;
};

}  // namespace

std::string perfetto_trace(const Timeline& timeline, const DrawOptions& options) {
  Trace trace;
  const std::string title = drawing_title(timeline, options);
  const std::string label = options.measured ? "predicted" : "";
  trace.add(timeline, title + "; " + idle_line(timeline, label, options.seconds),
            options.seconds ? 1e6 : 1e3);
  if (options.measured)
    trace.add(*options.measured, title + "; " + idle_line(*options.measured, "measured", true),
              1e6);
  return trace.json();
}

}  // namespace trireme::schedule
