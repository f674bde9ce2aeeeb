#pragma once

namespace troupe {

/// The style sheet of report.html. It contains no character that XML must escape.
inline constexpr const char* report_style = R"(
:root { color-scheme: light dark; --page: #f6f6f3; --card: #ffffff; --ink: #1d1d1b; --soft: #63625c; --line: #e3e2dc;
  --good: #1a7f4b; --bad: #b3261e; --warn: #95610a;
  --s1: #2f6fc4; --s2: #d9731a; --s3: #2a9d78; --s4: #8a63c9; --s5: #c74a76; }
@media (prefers-color-scheme: dark) { :root { --page: #161615; --card: #1f1f1e; --ink: #ecebe6; --soft: #a3a29a;
  --line: #353432; --good: #5cc48d; --bad: #f2857c; --warn: #e0ad52;
  --s1: #6ea5ee; --s2: #f0974a; --s3: #55c3a0; --s4: #b598ea; --s5: #ec86a8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 20px 48px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 6px; overflow-wrap: anywhere; }
h2 { font-size: 15px; margin: 0 0 8px; }
header p { margin: 0 0 20px; color: var(--soft); overflow-wrap: anywhere; }
.state { font-weight: 600; padding: 1px 9px; border: 1px solid; border-radius: 99px; margin-right: 4px; }
.state.done { color: var(--good); } .state.failed { color: var(--bad); } .state.stopped { color: var(--warn); }
.failure { background: var(--card); border-left: 4px solid var(--bad); border-radius: 4px; padding: 10px 14px;
  margin: 0 0 20px; overflow-wrap: anywhere; white-space: pre-line; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px 30px; margin: 0 0 24px; align-items: flex-end; }
.tile { max-width: 200px; }
.tile b { display: block; font-size: 22px; line-height: 1.25; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile.main b { font-size: 38px; }
.tile span { display: block; color: var(--soft); font-size: 13px; line-height: 1.3; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); gap: 16px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; min-width: 0; }
.card.full { grid-column: 1 / -1; }
.chart { display: block; width: 100%; height: auto; }
.chart .grid { stroke: var(--line); }
.chart text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--ink);
  font-variant-numeric: tabular-nums; }
.chart .tick { fill: var(--soft); }
.chart .line { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.chart .mark, .chart .bar { fill: currentColor; }
.series-1 { color: var(--s1); } .series-2 { color: var(--s2); } .series-3 { color: var(--s3); }
.series-4 { color: var(--s4); } .series-5 { color: var(--s5); }
.idle { color: var(--line); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 0 0 6px; font-size: 13px; color: var(--soft); }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px;
  background: currentColor; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 500; }
th, td { text-align: right; padding: 4px 0 4px 24px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child, td.text, .tasks :last-child { text-align: left; }
th:first-child, td:first-child { padding-left: 0; }
td.text { white-space: normal; color: var(--soft); }
.note { color: var(--soft); font-size: 13px; margin: 8px 0 0; }
.notices { list-style: none; margin: 0; padding: 0; overflow-wrap: anywhere; }
.notices time { color: var(--soft); display: inline-block; min-width: 52px; font-variant-numeric: tabular-nums; }
details summary { cursor: pointer; color: var(--soft); }
pre { margin: 0; overflow-x: auto; font: 13px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; }
footer { margin-top: 24px; color: var(--soft); font-size: 13px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 0; overflow-wrap: anywhere; }
dd { margin: 0; }
)";

} // namespace troupe
