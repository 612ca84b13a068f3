#include <trireme/base/clock.hpp>

#include <array>
#include <charconv>
#include <cstdio>

namespace trireme {

namespace chrono = std::chrono;

Utc utc_now() {
  return chrono::floor<chrono::milliseconds>(chrono::system_clock::now());
}

std::string to_text(Utc time) {
  const auto day = chrono::floor<chrono::days>(time);
  const chrono::year_month_day date(day);
  const chrono::hh_mm_ss clock(time - day);
  std::array<char, 64> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ",
                static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                static_cast<unsigned>(date.day()), static_cast<int>(clock.hours().count()),
                static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()),
                static_cast<int>(clock.subseconds().count()));
  return buffer.data();
}

std::optional<Utc> parse_utc(std::string_view text) {
  constexpr std::string_view form = "dddd-dd-ddTdd:dd:dd.dddZ";
  if (text.size() != form.size()) return std::nullopt;
  for (std::size_t i = 0; i < form.size(); ++i)
    if (form[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != form[i]) return std::nullopt;
  const auto number = [&](std::size_t at, std::size_t digits) {
    int value = 0;
    std::from_chars(text.data() + at, text.data() + at + digits, value);
    return value;
  };
  const chrono::year_month_day date(chrono::year(number(0, 4)),
                                    chrono::month(static_cast<unsigned>(number(5, 2))),
                                    chrono::day(static_cast<unsigned>(number(8, 2))));
  if (!date.ok() || number(11, 2) > 23 || number(14, 2) > 59 || number(17, 2) > 59)
    return std::nullopt;
  return chrono::sys_days(date) + chrono::hours(number(11, 2)) + chrono::minutes(number(14, 2)) +
         chrono::seconds(number(17, 2)) + chrono::milliseconds(number(20, 3));
}

}  // namespace trireme
