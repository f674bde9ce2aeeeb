"""Each source includes the headers of the names that it uses, itself or through headers of this project.

A unity build compiles several files as one, so it does not see that an #include is missing. This test compiles nothing:
it searches for names of the standard library, and for types and functions of this project that have an underscore in
their names (other names could be variables)."""

import collections
import pathlib
import re
import sys
import tempfile
import unittest

FOLDERS = ("kernels", "messages", "actors", "apps", "tests")
# Not checked: other projects, which use an installed copy of troupe.
APART = ("apps/examples/", "tests/install/", "tests/house/")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
COMMENT_OR_TEXT = re.compile(r'//[^\n]*|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"')

ALGORITHMS = """adjacent_find all_of any_of binary_search clamp copy copy_if copy_n count count_if equal equal_range
    fill fill_n find find_if find_if_not for_each generate includes is_sorted lexicographical_compare lower_bound max
    max_element merge min min_element minmax mismatch none_of nth_element partial_sort partition remove_if replace
    reverse rotate set_difference set_intersection shuffle sort stable_sort transform unique upper_bound""".split()
FUNCTIONS_OF_MATH = """abs ceil cos exp expm1 floor fma frexp hypot isfinite isinf isnan ldexp llround log log10 log1p
    log2 lround nextafter pow round sin sqrt tanh""".split()

# For each header of the standard library: the names that need it.
STANDARD = {
    "algorithm": rf"std::(?:ranges::)?(?:{'|'.join(ALGORITHMS)})\s*[(<]",
    "array": r"std::array\b",
    "atomic": r"std::(?:atomic|memory_order)",
    "bit": r"std::(?:bit_cast|bit_ceil|bit_width|countl_zero|countr_zero|endian|has_single_bit|popcount)\b",
    "charconv": r"std::(?:from|to)_chars\b",
    "chrono": r"std::chrono\b",
    "cmath": rf"std::(?:{'|'.join(FUNCTIONS_OF_MATH)})\(",
    "condition_variable": r"std::condition_variable\b",
    "cstdint": r"std::u?int(?:8|16|32|64)_t\b",
    "cstdio": r"std::(?:FILE|fclose|fopen|fputs|fread|fwrite|printf|snprintf)\b",
    "cstdlib": r"std::(?:abort|exit|free|getenv|malloc|strtod|strtol)\(",
    "cstring": r"std::(?:memcmp|memcpy|memmove|memset|strcmp|strerror|strlen)\(",
    "deque": r"std::deque\b",
    "filesystem": r"std::filesystem\b",
    "fstream": r"std::[io]?fstream\b",
    "functional": r"std::(?:function|invoke|reference_wrapper)\b",
    "iostream": r"std::(?:cerr|cin|cout)\b",
    "iterator": r"std::(?:advance|back_inserter|distance|inserter|istreambuf_iterator|next|prev|ssize)\s*[(<]",
    "limits": r"std::numeric_limits\b",
    "list": r"std::list\b",
    "map": r"std::(?:multi)?map\b",
    "memory": r"std::(?:make_shared|make_unique|shared_ptr|unique_ptr|weak_ptr)\b",
    "mutex": r"std::(?:call_once|lock_guard|mutex|once_flag|scoped_lock|unique_lock)\b",
    "numbers": r"std::numbers\b",
    "numeric": r"std::(?:accumulate|gcd|inner_product|iota|lcm|reduce|transform_reduce)\(",
    "optional": r"std::(?:nullopt|optional)\b",
    "queue": r"std::(?:priority_)?queue\b",
    "random": r"std::(?:mt19937|random_device|uniform_\w+_distribution|normal_distribution)",
    "regex": r"std::regex",
    "set": r"std::(?:multi)?set\b",
    "span": r"std::(?:as_bytes|as_writable_bytes|span)\b",
    "sstream": r"std::[io]?stringstream\b",
    "stdexcept": r"std::(?:invalid_argument|length_error|logic_error|out_of_range|runtime_error)\b",
    "string": r"std::(?:getline|stod|stoi|stoul|string|to_string)\b",
    "string_view": r"std::string_view\b",
    "system_error": r"std::(?:errc|error_code|generic_category|system_error)\b",
    "thread": r"std::(?:jthread|this_thread|thread)\b",
    "tuple": r"std::(?:apply|make_tuple|tie|tuple)\b",
    "type_traits": r"std::(?:conditional_t|decay_t|enable_if_t|is_\w+_v|remove_\w+_t|underlying_type_t)\b",
    "unordered_map": r"std::unordered_map\b",
    "unordered_set": r"std::unordered_set\b",
    "utility": r"std::(?:as_const|declval|exchange|forward|in_range|move|pair|swap)\s*[(<{]",
    "variant": r"std::(?:get_if|holds_alternative|monostate|variant|visit)\b",
    "vector": r"std::vector\b",
}
STANDARD = {header: re.compile(names) for header, names in STANDARD.items()}
# For each header: other headers whose names it also declares.
DECLARES = {"charconv": {"system_error"}, "filesystem": {"system_error"}, "fstream": {"string"}, "map": {"utility"},
            "regex": {"string"}, "sstream": {"string"}, "stdexcept": {"string"}, "string": {"string_view"},
            "system_error": {"string"}}

# Regular expressions for the types and constants that a header defines, and for the functions that it declares.
TYPE = re.compile(r"^(?:template\s*<[^\n]*>\s*)?(?:struct|class|enum class|enum)\s+(\w+_\w+)\b[^;(\n]*\{"
                  r"|^using (\w+_\w+) =|^inline constexpr [\w:<>, ]+ (\w+_\w+)\b", re.M)
FUNCTION = re.compile(r"^(?!using|return|#)(?:[\w:\[\]]+(?:<[^()\n]*>)?[&*]* )+[&*]?(\w+_\w+)\(", re.M)
# Names that a file declares or defines itself.
OWN = re.compile(r"\b(?:struct|class|enum class|enum)\s+(\w+)|\busing (\w+) =|[\w>&*]\s+(\w+)[,()]|\b(\w+)\s*(?:=|\{)")
USED_TYPE = re.compile(r"(?<![\w.>:])(?:troupe::)?([a-z]\w*_\w+)(?=\s+[a-z_]\w*\s*[;({=,)]|[&*]\s|\{|<|::)")
USED_FUNCTION = re.compile(r"(?<![\w.>:])(?:troupe::)?([a-z]\w*_\w+)(?=\()")


def first_of(match):
    return next(x for x in match.groups() if x)


class Sources:
    """The sources below a folder: their texts without comments, and the names of the files that they include."""

    def __init__(self, root):
        self.includes, self.text = {}, {}
        for folder in FOLDERS:
            for path in sorted((root / folder).rglob("*")):
                name = path.relative_to(root).as_posix()
                if path.suffix in (".cpp", ".hpp") and not name.startswith(APART):
                    text = path.read_text()
                    self.includes[name] = INCLUDE.findall(text)
                    self.text[name] = COMMENT_OR_TEXT.sub('""', text)

    def reached(self, name):
        """All files that a file includes, itself or through other files."""
        result, open_ = {name}, [name]
        while open_:
            for x in self.includes.get(open_.pop(), ()):
                if x not in result:
                    result |= {x} | DECLARES.get(x, set())
                    open_.append(x)
        return result

    def homes(self, pattern):
        """For each name that exactly one header introduces, this header."""
        homes = collections.defaultdict(set)
        for name, text in self.text.items():
            if name.endswith(".hpp"):
                for match in pattern.finditer(text):
                    homes[first_of(match)].add(name)
        return {x: next(iter(where)) for x, where in homes.items() if len(where) == 1}

    def violations(self):
        types, functions = self.homes(TYPE), self.homes(FUNCTION)
        own = {name: {first_of(x) for x in OWN.finditer(text)} for name, text in self.text.items()}
        for name, text in self.text.items():
            reached = self.reached(name)
            for header, names in STANDARD.items():
                if header not in reached and (match := names.search(text)):
                    yield f"{name}: uses {match[0]} without <{header}>"
            known = set().union(*(own[x] for x in reached if x in own))
            for homes, used in ((types, USED_TYPE), (functions, USED_FUNCTION)):
                for x in sorted({x for x in used.findall(text) if x in homes and x not in known}):
                    test = homes[x].startswith("tests/") and not name.startswith("tests/")
                    if homes[x] not in reached and not test:
                        yield f'{name}: uses {x} without "{homes[x]}"'
            header = name[:-4] + ".hpp"
            if name.endswith(".cpp") and header in self.text and self.includes[name][:1] != [header]:
                yield f'{name}: does not include "{header}" first'


class UsedHeaders(unittest.TestCase):
    root = None

    def test_are_included(self):
        sources = Sources(self.root)
        self.assertGreater(len(sources.text), 500)
        self.assertGreater(len(sources.homes(TYPE)), 200)
        self.assertGreater(len(sources.homes(FUNCTION)), 200)
        self.assertEqual(list(sources.violations()), [])


class Violations(unittest.TestCase):
    def seen(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return list(Sources(root).violations())

    def test_are_seen(self):
        header = "struct some_type {\n};\nint some_function(int x);\n"
        for text, says in (
            ("std::vector<int> x;\n", "uses std::vector without <vector>"),
            ("#include <string>\nauto x = std::ranges::find(a, b);\n", "without <algorithm>"),
            ("some_type x;\n", 'uses some_type without "actors/a.hpp"'),
            ("void f(const some_type& x);\n", 'uses some_type without "actors/a.hpp"'),
            ("int x = some_function(3);\n", 'uses some_function without "actors/a.hpp"'),
        ):
            with self.subTest(text=text):
                found = self.seen({"actors/a.hpp": header, "actors/b.cpp": text})
                self.assertEqual(len(found), 1, found)
                self.assertIn(says, found[0])
        found = self.seen({"actors/a.hpp": header, "actors/a.cpp": '#include <map>\n#include "actors/a.hpp"\n'})
        self.assertEqual(found, ['actors/a.cpp: does not include "actors/a.hpp" first'])

    def test_what_is_allowed(self):
        self.assertEqual(self.seen({
            "actors/a.hpp": "#include <vector>\nstruct some_type {\n};\nint some_function(int x);\n",
            "actors/b.hpp": '#include "actors/a.hpp"\n',
            "actors/b.cpp": '#include "actors/b.hpp"\nstd::vector<some_type> x(some_function(1));\n',
            "actors/c.cpp": "struct some_type;\nvoid f(const some_type& x); // std::vector\n",
            "actors/d.cpp": "int x(int some_function) { return y.some_function(some_function); }\n",
        }), [])


if __name__ == "__main__":
    UsedHeaders.root = pathlib.Path(sys.argv.pop())
    unittest.main(verbosity=2)
