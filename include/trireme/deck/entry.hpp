#pragma once

#include <trireme/deck/table.hpp>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme::deck {

inline constexpr std::int64_t steps_limit =
    4294967295;  ///< a step is one word of the random counter
inline constexpr std::int64_t identifier_limit =
    1 << 30;  ///< token ids are stored in at most 32 bits

/// Builds one entry of the key table; each call says one thing about the key.
class Entry {
 public:
  Entry(const char* section, const char* name, KeyType type, const char* help, Effect effect) {
    key_.section = section;
    key_.name = name;
    key_.type = type;
    key_.help = help;
    key_.effect = effect;
  }

  /// The key is kept in `section_member.*member` of a Config.
  template <class S, class T>
  Entry& in(S Config::*section_member, T S::*member) {
    key_.store = [=](Config& config, const Value& value) {
      if constexpr (std::is_enum_v<T>)
        (config.*section_member).*member = parse<T>(std::get<std::string>(value)).value();
      else
        (config.*section_member).*member = std::get<T>(value);
    };
    key_.load = [=](const Config& config) -> Value {
      const T& field = (config.*section_member).*member;
      if constexpr (std::is_enum_v<T>)
        return std::string(name_of(field));
      else
        return field;
    };
    return *this;
  }

  Entry& unit(const char* unit) { return key_.unit = unit, *this; }
  Entry& at_least(std::int64_t least) { return key_.range.least = least, *this; }
  Entry& at_most(std::int64_t most) { return key_.range.most = most, *this; }
  Entry& from(double low) { return key_.range.low = low, *this; }
  Entry& above(double low) { return key_.range.low_open = true, from(low); }
  Entry& below(double high) {
    key_.range.high_open = true;
    key_.range.high = high;
    return *this;
  }
  /// In place of the section's.
  Entry& effect(Effect effect) { return key_.effect = effect, *this; }
  Entry& nonempty() { return key_.nonempty = true, *this; }
  Entry& words(std::vector<std::string_view> words) {
    key_.choices = std::move(words);
    return *this;
  }

  /// Where the deck is silent: `value`, which documents show as it is written or else as `rule`.
  Entry& otherwise(Value value, const char* rule = "") {
    key_.fallback = std::move(value);
    key_.rule = rule;
    return *this;
  }
  /// Where the deck is silent: what `derived` computes from keys that stand earlier in the table.
  Entry& derive(void (*derived)(Config&), const char* rule) {
    key_.derived = derived;
    key_.rule = rule;
    return *this;
  }

  Key take() { return std::move(key_); }

 private:
  Key key_;
};

/// Adds the entries of one section, kept in a member of Config of type S. Their effect is that of
/// the section unless they say otherwise.
template <class S>
class SectionKeys {
 public:
  SectionKeys(std::vector<Entry>& out, const char* section, S Config::*member,
              Effect effect = Effect::none)
      : out_(out), section_(section), member_(member), effect_(effect) {}

  Entry& string(const char* name, std::string S::*field, const char* help) {
    return add(name, KeyType::string, help).in(member_, field);
  }
  Entry& path(const char* name, std::string S::*field, const char* help) {
    return add(name, KeyType::path, help).in(member_, field);
  }
  Entry& integer(const char* name, std::int64_t S::*field, const char* help) {
    return add(name, KeyType::integer, help).in(member_, field);
  }
  Entry& number(const char* name, double S::*field, const char* help) {
    return add(name, KeyType::number, help).in(member_, field);
  }
  Entry& boolean(const char* name, bool S::*field, const char* help) {
    return add(name, KeyType::boolean, help).in(member_, field);
  }
  Entry& duration(const char* name, Seconds S::*field, const char* help) {
    return add(name, KeyType::duration, help).in(member_, field).unit("hh:mm:ss");
  }
  template <class E>
  Entry& choice(const char* name, E S::*field, const char* help) {
    const auto all = names<E>();
    return add(name, KeyType::choice, help).in(member_, field).words({all.begin(), all.end()});
  }

 private:
  Entry& add(const char* name, KeyType type, const char* help) {
    return out_.emplace_back(section_, name, type, help, effect_);
  }

  std::vector<Entry>& out_;
  const char* section_;
  S Config::*member_;
  Effect effect_;
};

/// The entries of [model] and [optimizer].
void model_keys(std::vector<Entry>& out);
void optimizer_keys(std::vector<Entry>& out);

}  // namespace trireme::deck
