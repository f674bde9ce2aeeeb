#include "kernels/data/digit_strokes.hpp"

#include <array>

namespace troupe {

namespace {

using point = stroke_point;
using drawing = std::span<const stroke>;

constexpr point zero_loop[]{{0, -1},     {.5F, -.6F}, {.6F, 0},     {.5F, .6F}, {0, 1},
                            {-.5F, .6F}, {-.6F, 0},   {-.5F, -.6F}, {0, -1}};
constexpr point zero_open[]{{.3F, -.9F}, {-.25F, -.95F}, {-.6F, -.2F}, {-.45F, .7F},
                            {.05F, 1},   {.55F, .5F},    {.55F, -.4F}, {.1F, -.95F}};
constexpr stroke zero_a[]{{true, zero_loop}};
constexpr stroke zero_b[]{{true, zero_open}};

constexpr point one_bar[]{{.05F, -1}, {0, 0}, {-.05F, 1}};
constexpr point one_flag[]{{-.35F, -.55F}, {.05F, -1}, {.05F, 1}};
constexpr point one_base[]{{-.35F, 1}, {.4F, 1}};
constexpr stroke one_a[]{{false, one_bar}};
constexpr stroke one_b[]{{false, one_flag}};
constexpr stroke one_c[]{{false, one_flag}, {false, one_base}};

constexpr point two_hook[]{{-.5F, -.6F},  {-.1F, -1}, {.4F, -.8F},
                           {.45F, -.35F}, {0, .3F},   {-.55F, .95F}};
constexpr point two_base[]{{-.55F, .95F}, {.6F, .9F}};
constexpr point two_loop[]{{-.5F, -.6F}, {0, -1},     {.45F, -.6F}, {.2F, .2F}, {-.3F, .85F},
                           {-.55F, .7F}, {-.2F, .6F}, {.2F, .9F},   {.6F, .85F}};
constexpr stroke two_a[]{{true, two_hook}, {false, two_base}};
constexpr stroke two_b[]{{true, two_loop}};

constexpr point three_top[]{{-.5F, -.8F}, {0, -1}, {.45F, -.7F}, {.3F, -.2F}, {-.1F, -.05F}};
constexpr point three_bottom[]{{-.1F, -.05F}, {.4F, .15F}, {.5F, .65F}, {0, 1}, {-.55F, .75F}};
constexpr point three_flat[]{{-.5F, -.95F}, {.4F, -.95F}, {-.05F, -.15F}};
constexpr point three_belly[]{{-.05F, -.15F}, {.4F, .05F}, {.5F, .6F}, {0, 1}, {-.5F, .8F}};
constexpr stroke three_a[]{{true, three_top}, {true, three_bottom}};
constexpr stroke three_b[]{{false, three_flat}, {true, three_belly}};

constexpr point four_left[]{{-.4F, -.9F}, {-.5F, .1F}, {.55F, .1F}};
constexpr point four_right[]{{.35F, -.9F}, {.3F, 1}};
constexpr point four_corner[]{{.25F, -1}, {-.6F, .3F}, {.6F, .3F}};
constexpr point four_stem[]{{.25F, -1}, {.25F, 1}};
constexpr stroke four_a[]{{false, four_left}, {false, four_right}};
constexpr stroke four_b[]{{false, four_corner}, {false, four_stem}};

constexpr point five_top[]{{.5F, -.95F}, {-.35F, -.95F}, {-.45F, -.1F}};
constexpr point five_belly[]{{-.45F, -.1F}, {.05F, -.3F}, {.5F, .1F},
                             {.45F, .7F},   {0, 1},       {-.5F, .8F}};
constexpr point five_whole[]{{.5F, -.9F}, {-.2F, -.9F}, {-.4F, -.2F}, {.1F, -.2F},
                             {.45F, .3F}, {.1F, .95F},  {-.5F, .8F}};
constexpr stroke five_a[]{{false, five_top}, {true, five_belly}};
constexpr stroke five_b[]{{true, five_whole}};

constexpr point six_round[]{{.4F, -.95F}, {-.2F, -.5F}, {-.5F, .2F}, {-.35F, .85F}, {.1F, 1},
                            {.5F, .65F},  {.35F, .15F}, {-.1F, .1F}, {-.45F, .45F}};
constexpr point six_straight[]{{.1F, -1},   {-.35F, -.1F}, {-.45F, .6F}, {0, 1},
                               {.4F, .65F}, {.15F, .25F},  {-.4F, .5F}};
constexpr stroke six_a[]{{true, six_round}};
constexpr stroke six_b[]{{true, six_straight}};

constexpr point seven_top[]{{-.55F, -.9F}, {.55F, -.9F}};
constexpr point seven_stem[]{{.55F, -.9F}, {.1F, 0}, {-.15F, 1}};
constexpr point seven_bar[]{{-.25F, .05F}, {.4F, .05F}};
constexpr stroke seven_a[]{{false, seven_top}, {true, seven_stem}};
constexpr stroke seven_b[]{{false, seven_top}, {true, seven_stem}, {false, seven_bar}};

constexpr point eight_cross[]{{.4F, -.7F}, {0, -1},      {-.4F, -.65F}, {0, -.05F}, {.45F, .5F},
                              {0, 1},      {-.45F, .5F}, {0, -.05F},    {.4F, -.7F}};
constexpr point eight_top[]{{0, -.1F}, {-.4F, -.5F}, {0, -1}, {.4F, -.5F}, {0, -.1F}};
constexpr point eight_bottom[]{{0, -.1F}, {-.5F, .4F}, {0, 1}, {.5F, .4F}, {0, -.1F}};
constexpr stroke eight_a[]{{true, eight_cross}};
constexpr stroke eight_b[]{{true, eight_top}, {true, eight_bottom}};

constexpr point nine_head[]{{.45F, -.5F},  {.1F, -.95F}, {-.4F, -.7F},
                            {-.35F, -.2F}, {.1F, -.05F}, {.45F, -.5F}};
constexpr point nine_stem[]{{.45F, -.5F}, {.4F, .3F}, {.2F, 1}};
constexpr point nine_tail[]{{.45F, -.5F}, {.45F, .4F}, {.1F, 1}, {-.4F, .85F}};
constexpr stroke nine_a[]{{true, nine_head}, {true, nine_stem}};
constexpr stroke nine_b[]{{true, nine_head}, {true, nine_tail}};

constexpr drawing zeros[]{zero_a, zero_b};
constexpr drawing ones[]{one_a, one_b, one_c};
constexpr drawing twos[]{two_a, two_b};
constexpr drawing threes[]{three_a, three_b};
constexpr drawing fours[]{four_a, four_b};
constexpr drawing fives[]{five_a, five_b};
constexpr drawing sixes[]{six_a, six_b};
constexpr drawing sevens[]{seven_a, seven_b};
constexpr drawing eights[]{eight_a, eight_b};
constexpr drawing nines[]{nine_a, nine_b};

constexpr std::array<std::span<const drawing>, 10> shapes{zeros, ones,  twos,   threes, fours,
                                                          fives, sixes, sevens, eights, nines};

} // namespace

std::span<const std::span<const stroke>> digit_shapes(std::size_t digit) noexcept {
  return shapes[digit];
}

} // namespace troupe
