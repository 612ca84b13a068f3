#pragma once

#include <trireme/deck/table.hpp>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme::deck {

inline constexpr std::int64_t steps_limit =
    4294967295;  ///< a step number is one 32-bit word of the random generator's counter
inline constexpr std::int64_t identifier_limit =
    1 << 30;  ///< token ids are stored in at most 32 bits

/// Builds one entry of a key table for a config of type C; each call sets one property.
template <class C>
class EntryOf {
 public:
  EntryOf(const char* section, const char* name, KeyType type, const char* help,
          Effect effect = Effect::none) {
    key_.section = section;
    key_.name = name;
    key_.type = type;
    key_.help = help;
    key_.effect = effect;
  }

  /// The value is stored in `(config.*section_member).*member` of a C `config`.
  template <class S, class T>
  EntryOf& in(S C::*section_member, T S::*member) {
    return at([=](auto& config) -> auto& { return (config.*section_member).*member; });
  }
  /// The value is stored in `((config.*outer).*inner).*member` of a C `config`.
  template <class S, class M, class T>
  EntryOf& in(S C::*outer, M S::*inner, T M::*member) {
    return at([=](auto& config) -> auto& { return ((config.*outer).*inner).*member; });
  }
  /// The value is stored in `member` of a C.
  template <class T>
  EntryOf& in(T C::*member) {
    return at([=](auto& config) -> auto& { return config.*member; });
  }

  EntryOf& unit(const char* unit) { return key_.unit = unit, *this; }
  EntryOf& at_least(std::int64_t least) { return key_.range.least = least, *this; }
  EntryOf& at_most(std::int64_t most) { return key_.range.most = most, *this; }
  EntryOf& from(double low) { return key_.range.low = low, *this; }
  EntryOf& above(double low) { return key_.range.low_open = true, from(low); }
  EntryOf& to(double high) { return key_.range.high = high, *this; }
  EntryOf& below(double high) {
    key_.range.high_open = true;
    key_.range.high = high;
    return *this;
  }
  /// Replaces the default effect of the section.
  EntryOf& effect(Effect effect) { return key_.effect = effect, *this; }
  EntryOf& nonempty() { return key_.nonempty = true, *this; }
  EntryOf& words(std::vector<std::string_view> words) {
    key_.choices = std::move(words);
    return *this;
  }

  /// Default: `value`. Documents show `rule` in place of the value, if `rule` is not "".
  EntryOf& otherwise(Value value, const char* rule = "") {
    key_.fallback = std::move(value);
    key_.rule = rule;
    return *this;
  }
  /// Default: computed by `derived` from other keys.
  EntryOf& derive(void (*derived)(C&), const char* rule) {
    key_.derived = derived;
    key_.rule = rule;
    return *this;
  }

  /// Required, unless `excused` stores a value by `rule` and returns true.
  EntryOf& required_unless(bool (*excused)(C&), const char* rule) {
    key_.excused = excused;
    key_.often_required = true;
    key_.rule = rule;
    return *this;
  }

  KeyOf<C> take() { return std::move(key_); }

 private:
  /// Stores and loads the value by `field`, which returns a reference to the value in a C.
  template <class Field>
  EntryOf& at(Field field) {
    using T = std::remove_reference_t<decltype(field(std::declval<C&>()))>;
    key_.store = [field](C& config, const Value& value) {
      if constexpr (std::is_enum_v<T>)
        field(config) = parse<T>(std::get<std::string>(value)).value();
      else
        field(config) = std::get<T>(value);
    };
    key_.load = [field](const C& config) -> Value {
      if constexpr (std::is_enum_v<T>)
        return std::string(name_of(field(config)));
      else
        return field(config);
    };
    return *this;
  }

  KeyOf<C> key_;
};
using Entry = EntryOf<Config>;

/// Adds the entries of a section that a member of C stores. `effect`: default of the keys.
template <class S, class C = Config>
class SectionKeys {
 public:
  SectionKeys(std::vector<EntryOf<C>>& out, const char* section, S C::*member,
              Effect effect = Effect::none)
      : out_(out), section_(section), member_(member), effect_(effect) {}

  EntryOf<C>& string(const char* name, std::string S::*field, const char* help) {
    return add(name, KeyType::string, help).in(member_, field);
  }
  EntryOf<C>& path(const char* name, std::string S::*field, const char* help) {
    return add(name, KeyType::path, help).in(member_, field);
  }
  EntryOf<C>& integer(const char* name, std::int64_t S::*field, const char* help) {
    return add(name, KeyType::integer, help).in(member_, field);
  }
  EntryOf<C>& integers(const char* name, Integers S::*field, const char* help) {
    return add(name, KeyType::integers, help).in(member_, field);
  }
  EntryOf<C>& number(const char* name, double S::*field, const char* help) {
    return add(name, KeyType::number, help).in(member_, field);
  }
  EntryOf<C>& boolean(const char* name, bool S::*field, const char* help) {
    return add(name, KeyType::boolean, help).in(member_, field);
  }
  EntryOf<C>& duration(const char* name, Seconds S::*field, const char* help) {
    return add(name, KeyType::duration, help).in(member_, field).unit("hh:mm:ss");
  }
  EntryOf<C>& bytes(const char* name, Bytes S::*field, const char* help) {
    return add(name, KeyType::bytes, help).in(member_, field);
  }
  /// B: S or a base of S.
  template <class E, class B>
  EntryOf<C>& choice(const char* name, E B::*field, const char* help) {
    const auto all = names<E>();
    return add(name, KeyType::choice, help)
        .in(member_, static_cast<E S::*>(field))
        .words({all.begin(), all.end()});
  }

 private:
  EntryOf<C>& add(const char* name, KeyType type, const char* help) {
    return out_.emplace_back(section_, name, type, help, effect_);
  }

  std::vector<EntryOf<C>>& out_;
  const char* section_;
  S C::*member_;
  Effect effect_;
};

/// The words of an enum, as the choices of a key.
template <class E>
std::vector<std::string_view> words_of_keys() {
  const auto all = names<E>();
  return {all.begin(), all.end()};
}

/// Add the entries of [local], [adapter], [experts], [encoder], [vision], [model], [optimizer] and
/// [parallel] to `out`.
void local_keys(std::vector<Entry>& out);
void adapter_keys(std::vector<Entry>& out);
void expert_keys(std::vector<Entry>& out);
void encoder_keys(std::vector<Entry>& out);
void vision_keys(std::vector<Entry>& out);
void model_keys(std::vector<Entry>& out);
void optimizer_keys(std::vector<Entry>& out);
void parallel_keys(std::vector<Entry>& out);
/// Adds the entry of [data] packing, whose value is stored in ModelConfig.
void packing_key(std::vector<Entry>& out);

}  // namespace trireme::deck
