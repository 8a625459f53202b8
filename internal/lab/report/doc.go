// Package report draws a report of a measurement as one self-contained HTML file:
// bars of every table with the bounds of each figure, courses over time above one
// another, the goals, and all figures as text beneath. The commands that measure
// call it for --html.
//
// The page asks the network for nothing: the chart library (Apache ECharts) is part
// of it, and its content security policy forbids all else, scripts other than its
// own two included, which it names by their hashes. So whatever text a report holds,
// none of it can run.
//
//	figures.Report ──▶ view (view.go: what is drawn, and in which words)
//	                     ├──▶ page.html   text, tables, places for charts
//	                     └──▶ JSON ──▶ draw.js   options of ECharts
//
// Go decides what is shown and writes every number; draw.js decides where it
// stands. Without scripts the text and tables are still there.
package report
