#pragma once

#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"

#include <cstddef>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>

// Rows of a matrix, for kernels that use each row several times, such as softmax. A team of threads
// (a warp or a block) handles a row at a time. The team keeps the row in registers, so it reads the
// row only once. Only a row that is too long for the registers is read several times.

namespace troupe::cuda {

struct warp_team {
  static constexpr unsigned threads = warp_threads;
  static std::size_t blocks(std::size_t rows) { return blocks_for(rows, block_warps); }

  const thread& t;

  /// The numbers of the team's rows: first(), first() + stride(), ...
  TROUPE_DEVICE std::size_t first() const { return t.first_warp(); }
  TROUPE_DEVICE std::size_t stride() const { return t.warp_stride(); }
  /// The number of the thread in the team.
  TROUPE_DEVICE unsigned rank() const { return t.lane(); }
  // All threads of the team get the same result.
  template <class T>
  TROUPE_DEVICE T sum(T x) const {
    return warp_sum(t, x);
  }
  TROUPE_DEVICE float maximum(float x) const { return warp_maximum(t, x); }
};

/// A block of threads as a team. Its functions are those of warp_team. A launch needs shared memory
/// for block_warps doubles.
struct block_team {
  static constexpr unsigned threads = block_threads;
  static std::size_t blocks(std::size_t rows) { return blocks_for(rows, 1); }

  const thread& t;

  TROUPE_DEVICE std::size_t first() const { return t.block(); }
  TROUPE_DEVICE std::size_t stride() const { return t.blocks(); }
  TROUPE_DEVICE unsigned rank() const { return t.index(); }
  template <class T>
  TROUPE_DEVICE T sum(T x) const {
    return block_sum(t, x, t.shared<T>(block_warps));
  }
  TROUPE_DEVICE float maximum(float x) const {
    return block_maximum(t, x, t.shared<float>(block_warps));
  }
};

/// The columns of a row that a thread of a Team reads. It reads them in packs of pack_width
/// columns. `Packs` is the number of packs that a thread keeps in registers. If `Packs` is 0, the
/// row is not kept, and is read from memory each time. If all rows of all views are aligned
/// (Packed), the columns of a pack are neighbours, and are loaded at once. Otherwise, neighbouring
/// threads have neighbouring columns.
template <class Team, unsigned Packs, bool Packed>
struct row_columns {
  using team = Team;
  using values = pack<float, pack_width>;
  static constexpr unsigned packs = Packs;
  static constexpr bool keeps = Packs > 0;
  /// For kernels that keep one row in registers: how many blocks a multiprocessor should run at the
  /// same time (run_bounded_kernel).
  static constexpr unsigned blocks_at_once = Packs > 2 ? 2 : 4;
  static constexpr std::size_t shared_bytes =
    std::is_same_v<Team, block_team> ? block_warps * sizeof(double) : 0;
  /// The number of columns that the team covers with one pack per thread.
  static constexpr unsigned columns_at_once = Team::threads * pack_width;

  unsigned count = 0;

  /// The first column of pack p of a thread. Column k of the pack is column_of(first, k).
  TROUPE_DEVICE unsigned first_of(const Team& own, unsigned p) const {
    return own.rank() * (Packed ? pack_width : 1) + p * columns_at_once;
  }
  TROUPE_DEVICE unsigned column_of(unsigned first, unsigned k) const {
    return first + k * (Packed ? 1 : Team::threads);
  }
  /// True if the row has column k of the pack. A packed row has all columns of a pack, or none.
  TROUPE_DEVICE bool has(unsigned first, unsigned k) const {
    return (Packed ? first : column_of(first, k)) < count;
  }
  /// The rank of the thread that has this column.
  TROUPE_DEVICE unsigned owner_of(unsigned column) const {
    return column / (Packed ? pack_width : 1) % Team::threads;
  }
  /// Calls f(number of the pack, first column of the pack) for each pack of the thread that begins
  /// within the row.
  template <class F>
  TROUPE_DEVICE void each_pack(const Team& own, F f) const {
    if constexpr (keeps) {
      TROUPE_UNROLL
      for (unsigned p = 0; p < Packs; ++p)
        if (const auto j = first_of(own, p); j < count)
          f(p, j);
    } else {
      for (auto j = first_of(own, 0); j < count; j += columns_at_once)
        f(0, j);
    }
  }

  /// Loads a pack of the row that begins at element `begin`. Columns that the row does not have
  /// become `absent`.
  template <class In>
  TROUPE_DEVICE values load(const In& x, std::size_t begin, unsigned first, float absent) const {
    if constexpr (Packed) {
      return load_floats(width<pack_width>{}, x, begin + first);
    } else {
      values result;
      TROUPE_UNROLL
      for (unsigned k = 0; k < pack_width; ++k)
        result.x[k] = has(first, k) ? x.load(begin + column_of(first, k)) : absent;
      return result;
    }
  }
  /// Loads all packs of a row that is kept. All loads are submitted before the first loaded value
  /// is used, so that the loads run at the same time.
  template <class In>
  TROUPE_DEVICE void load_all(const Team& own, const In& x, std::size_t begin, float absent,
                              values (&to)[Packs > 0 ? Packs : 1]) const {
    if constexpr (Packed) {
      decltype(load_stored(width<pack_width>{}, x, begin)) stored[Packs > 0 ? Packs : 1] = {};
      TROUPE_UNROLL
      for (unsigned p = 0; p < Packs; ++p)
        if (has(first_of(own, p), 0))
          stored[p] = load_stored(width<pack_width>{}, x, begin + first_of(own, p));
      TROUPE_UNROLL
      for (unsigned p = 0; p < Packs; ++p) {
        const auto found = floats_of(stored[p]);
        TROUPE_UNROLL
        for (unsigned k = 0; k < pack_width; ++k)
          to[p].x[k] = has(first_of(own, p), k) ? found.x[k] : absent;
      }
    } else {
      TROUPE_UNROLL
      for (unsigned p = 0; p < Packs; ++p)
        to[p] = load(x, begin, first_of(own, p), absent);
    }
  }
  template <class Out>
  TROUPE_DEVICE void store(const Out& out, std::size_t begin, unsigned first,
                           const values& y) const {
    if constexpr (Packed) {
      if (has(first, 0))
        store_floats(out, begin + first, y);
    } else {
      TROUPE_UNROLL
      for (unsigned k = 0; k < pack_width; ++k)
        if (has(first, k))
          out.store(begin + column_of(first, k), y.x[k]);
    }
  }
};

/// One row of x. The row begins at element `begin`. The functions f below may also be called for
/// columns after the end of the row. The value of these columns is `absent`.
template <class Columns, class In>
class row_values {
public:
  using team = typename Columns::team;
  using values = typename Columns::values;

  TROUPE_DEVICE row_values(const team& own, const Columns& columns, const In& x, std::size_t begin,
                           float absent = 0)
    : own_(own), columns_(columns), x_(x), begin_(begin), absent_(absent) {
    if constexpr (Columns::keeps)
      columns_.load_all(own_, x_, begin_, absent, kept_);
  }

  /// Calls f(column, value) for each of the thread's columns. If the row is kept, f may change the
  /// value, and later calls see the change.
  template <class F>
  TROUPE_DEVICE void visit(F f) {
    each_pack([&](unsigned j, values& x) {
      TROUPE_UNROLL
      for (unsigned k = 0; k < pack_width; ++k)
        f(columns_.column_of(j, k), x.x[k]);
    });
  }
  /// The sum of f(column, value) over the thread's columns. The terms of a pack are added up in
  /// float32, and the packs in double.
  template <class F>
  TROUPE_DEVICE double sum(F f) {
    double total = 0;
    each_pack([&](unsigned j, values& x) {
      float part = 0;
      TROUPE_UNROLL
      for (unsigned k = 0; k < pack_width; ++k)
        part += f(columns_.column_of(j, k), x.x[k]);
      total += static_cast<double>(part);
    });
    return total;
  }
  /// The sum of f(value) over those of the thread's columns that the row has. Rounded like sum().
  template <class F>
  TROUPE_DEVICE double sum_present(F f) {
    double total = 0;
    each_pack([&](unsigned j, const values& x) {
      float part = 0;
      TROUPE_UNROLL
      for (unsigned k = 0; k < pack_width; ++k)
        part += columns_.has(j, k) ? f(x.x[k]) : 0;
      total += static_cast<double>(part);
    });
    return total;
  }
  /// Like sum_present, for two sums over both rows: f(value, value of the other row, terms) sets
  /// the two terms. Adds the sums to `totals`.
  template <class F>
  TROUPE_DEVICE void sum_present_with(row_values& other, double (&totals)[2], F f) {
    each_pack_with(other, [&](unsigned j, const values& x, const values& y) {
      float parts[2] = {};
      TROUPE_UNROLL
      for (unsigned k = 0; k < pack_width; ++k) {
        float terms[2];
        f(x.x[k], y.x[k], terms);
        parts[0] += columns_.has(j, k) ? terms[0] : 0;
        parts[1] += columns_.has(j, k) ? terms[1] : 0;
      }
      totals[0] += static_cast<double>(parts[0]);
      totals[1] += static_cast<double>(parts[1]);
    });
  }
  /// Calls f(true if the row has the column, value) for each of the thread's columns.
  template <class F>
  TROUPE_DEVICE void visit_present(F f) {
    each_pack([&](unsigned j, const values& x) {
      TROUPE_UNROLL
      for (unsigned k = 0; k < pack_width; ++k)
        f(columns_.has(j, k), x.x[k]);
    });
  }
  /// Calls f(true if the row has the column, value, value of the other row) for each of the
  /// thread's columns.
  template <class F>
  TROUPE_DEVICE void visit_present_with(row_values& other, F f) {
    each_pack_with(other, [&](unsigned j, const values& x, const values& y) {
      TROUPE_UNROLL
      for (unsigned k = 0; k < pack_width; ++k)
        f(columns_.has(j, k), x.x[k], y.x[k]);
    });
  }
  /// Writes f(column, value) to the same columns of the row of `out`. `out` may be x.
  template <class Out, class F>
  TROUPE_DEVICE void write(const Out& out, F f) {
    each_pack([&](unsigned j, const values& x) {
      values y;
      TROUPE_UNROLL
      for (unsigned k = 0; k < pack_width; ++k)
        y.x[k] = f(columns_.column_of(j, k), x.x[k]);
      columns_.store(out, begin_, j, y);
    });
  }
  /// Writes f(value, value of the other row) to the same columns of the row of `out`.
  template <class Out, class F>
  TROUPE_DEVICE void write_with(row_values& other, const Out& out, F f) {
    each_pack_with(other, [&](unsigned j, const values& x, const values& y) {
      values z;
      TROUPE_UNROLL
      for (unsigned k = 0; k < pack_width; ++k)
        z.x[k] = f(x.x[k], y.x[k]);
      columns_.store(out, begin_, j, z);
    });
  }

private:
  /// Calls f(first column, pack) for each pack of the thread.
  template <class F>
  TROUPE_DEVICE void each_pack(F f) {
    if constexpr (Columns::keeps) {
      TROUPE_UNROLL
      for (unsigned p = 0; p < Columns::packs; ++p)
        f(columns_.first_of(own_, p), kept_[p]);
    } else {
      columns_.each_pack(own_, [&](unsigned, unsigned j) {
        auto x = columns_.load(x_, begin_, j, absent_);
        f(j, x);
      });
    }
  }
  template <class F>
  TROUPE_DEVICE void each_pack_with(row_values& other, F f) {
    if constexpr (Columns::keeps) {
      TROUPE_UNROLL
      for (unsigned p = 0; p < Columns::packs; ++p)
        f(columns_.first_of(own_, p), kept_[p], other.kept_[p]);
    } else {
      columns_.each_pack(own_, [&](unsigned, unsigned j) {
        const auto x = columns_.load(x_, begin_, j, absent_);
        const auto y = columns_.load(other.x_, other.begin_, j, other.absent_);
        f(j, x, y);
      });
    }
  }

  const team& own_;
  const Columns& columns_;
  const In& x_;
  std::size_t begin_;
  float absent_;
  values kept_[Columns::keeps ? Columns::packs : 1] = {};
};

/// The largest number of columns of a row. Kernels count columns in 32 bits.
inline constexpr std::size_t most_row_columns = std::size_t{1} << 30;

/// Calls f(row_columns) with the team that suits rows of this length. In each view, the rows follow
/// each other without gaps. Throws std::invalid_argument if there are too many columns.
template <class F>
void with_row_columns(std::size_t columns, std::initializer_list<element_address> all, F f) {
  if (columns > most_row_columns)
    throw std::invalid_argument("a row of " + std::to_string(columns)
                                + " columns is too long for a kernel");
  bool packed = columns % pack_width == 0;
  for (const auto& x : all)
    packed = packed && x.packs();
  const auto n = static_cast<unsigned>(columns);
  constexpr auto few = 2 * warp_team::threads * pack_width;
  if (!packed) {
    if (n <= few)
      f(row_columns<warp_team, 2, false>{n});
    else
      f(row_columns<block_team, 0, false>{n});
  } else if (n <= few) {
    f(row_columns<warp_team, 2, true>{n});
  } else if (n <= 8 * warp_team::threads * pack_width) {
    f(row_columns<warp_team, 8, true>{n});
  } else if (n <= 8 * block_team::threads * pack_width) {
    f(row_columns<block_team, 8, true>{n});
  } else {
    f(row_columns<block_team, 0, true>{n});
  }
}

/// Launches a kernel whose teams handle `rows` rows.
template <class Columns, class Kernel>
void launch_rows(stream where, const char* name, std::size_t rows, const Columns&,
                 const Kernel& kernel) {
  launch(where, name, {Columns::team::blocks(rows), Columns::shared_bytes}, kernel);
}

} // namespace troupe::cuda
