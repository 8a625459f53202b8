// Draws the charts of a page with ECharts. What is drawn, and every number in
// words, comes from the JSON beside it (view.go); where it stands is decided here.
// Text of a report is given to ECharts as text, and to the page by textContent.
'use strict';
(function () {
  const report = JSON.parse(document.getElementById('report').textContent);
  const root = document.documentElement;
  const drawn = []; // of each chart: its place, its options, its ECharts

  // Blue is Sluice's, grey is what has no rules. The rest can be told apart by
  // people who see few colours, and by their order of brightness.
  const schemes = {
    light: { text: '#17202b', soft: '#5a6673', line: '#dde3e9', back: '#ffffff', mark: '#c02f25', own: ['#0b62c4', '#74b0ee', '#0a3a75', '#4c8dd8'], none: ['#8a949e', '#b7bec5'], rest: ['#d9730d', '#1c8a5b', '#8b49c4', '#c8372d', '#12889c', '#8a5f36', '#c2438c', '#7b7f1a'] },
    dark: { text: '#e8edf2', soft: '#9aa7b4', line: '#303a45', back: '#11161c', mark: '#ff7b6f', own: ['#4b9dff', '#a5cdf9', '#2c6fbd', '#78b4f5'], none: ['#8d99a5', '#5f6a75'], rest: ['#f59a42', '#4cc38a', '#b98aec', '#ff7b6f', '#4cc3d6', '#c59a6d', '#f08bc0', '#c4c852'] },
  };
  const media = window.matchMedia('(prefers-color-scheme: dark)');
  let theme = media.matches ? 'dark' : 'light';

  // colours gives names theirs: first those of the tables, the same on all charts.
  function colours(scheme, names) {
    const used = { own: 0, none: 0, rest: 0 };
    const out = new Map();
    for (const name of names) {
      const kind = /^sluice/i.test(name) || names.length === 1 ? 'own' : /^(bare|none|no |without|nothing|limit$|others$)/i.test(name) ? 'none' : 'rest';
      out.set(name, scheme[kind][used[kind]++ % scheme[kind].length]);
    }
    return out;
  }

  // short writes a number of an axis.
  function short(x, unit) {
    const a = Math.abs(x);
    if (unit === 'bytes') {
      for (const [size, name] of [[1e12, 'TB'], [1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB']]) {
        if (a >= size) return +(x / size).toPrecision(3) + ' ' + name;
      }
    }
    if (unit === 's' && a > 0 && a < 1) return a >= 1e-3 ? +(x * 1e3).toPrecision(3) + ' ms' : +(x * 1e6).toPrecision(3) + ' µs';
    const seconds = unit === 's' ? ' s' : '';
    if (a >= 1e9) return +(x / 1e9).toPrecision(3) + ' G';
    if (a >= 1e6) return +(x / 1e6).toPrecision(3) + ' M';
    if (a >= 1000) return String(Math.round(x)).replace(/\B(?=(\d{3})+$)/g, ',') + seconds;
    return String(+x.toPrecision(3)) + (x ? seconds : '');
  }

  function withUnit(x, unit) {
    const text = short(x, unit);
    return unit && unit !== 'bytes' && !/[a-zµ]$/i.test(text) ? text + ' ' + unit : text;
  }

  function bound(x, unit) {
    return x === null ? 'no bound' : withUnit(x, unit);
  }

  // cut shortens a name to what there is room for; the tables have it whole.
  function cut(text, size, room, weight) {
    if (width(text, size, weight) <= room) return text;
    let n = text.length;
    while (n > 1 && width(text.slice(0, n) + '…', size, weight) > room) n = Math.floor(n * 0.9);
    return text.slice(0, n) + '…';
  }

  function element(tag, text, parent, className) {
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = text;
    if (className) e.className = className;
    if (parent) parent.appendChild(e);
    return e;
  }

  // width of a text as it will be drawn, so that names get the room that they need.
  const ruler = document.createElement('canvas').getContext('2d');
  const family = getComputedStyle(document.body).fontFamily;
  function width(text, size, weight) {
    ruler.font = (weight || 400) + ' ' + size + 'px ' + family;
    return ruler.measureText(text).width;
  }

  // rows wraps the names of a legend as ECharts does, to know how high it is.
  function rows(names, room, size) {
    let n = 1, x = 0;
    for (const name of names) {
      const w = Math.min(width(name, size), room - 60) + 25 + 5 + 16;
      if (x > 0 && x + w - 16 > room) { n++; x = 0; }
      x += w;
    }
    return n;
  }

  function base(scheme, size) {
    return {
      animation: false,
      backgroundColor: 'transparent',
      textStyle: { fontFamily: family, fontSize: size, color: scheme.text },
    };
  }

  function tooltip(scheme) {
    return {
      confine: true, backgroundColor: scheme.back, borderColor: scheme.line, textStyle: { color: scheme.text },
    };
  }

  // ---- bars of a table, lying, with the bounds of each figure

  function barChart(b, scheme, size, room) {
    const several = b.subjects.length > 1;
    const names = colours(scheme, [...new Set([...report.subjects, ...(b.turned ? b.cases : b.subjects)])]);
    const nameWidth = Math.min(room * 0.34, Math.max(...b.cases.map((c) => width(c, size))) + 4);
    const thick = Math.round(size * (b.subjects.length > 5 ? 1.15 : several ? 1.35 : 1.6));
    const legend = several ? rows(b.subjects, room, size) * (size + 11) + 6 : 0;
    const top = legend + 4, bottom = size * 2 + 8;
    const folded = Math.max(...b.cases.map((c) => Math.min(3, Math.ceil(width(c, size) * 1.2 / nameWidth)))); // lines of the longest name
    const height = top + bottom + b.cases.length * Math.max(b.subjects.length * thick + (several ? 20 : 10), folded > 1 ? folded * size * 1.15 + 8 : 0);
    const cells = b.cells.flat().filter((c) => c.value !== null);
    const most = Math.max(...cells.map((c) => c.value), 0);
    const least = Math.min(...cells.map((c) => c.value), 0);
    // What is beyond is cut off: one bad round must not make all bars short.
    const reach = b.log ? [b.low, most * 10] : [least - 0.6 * (most - least), most + 0.6 * (most - least)];
    const within = (x) => Math.min(Math.max(x, reach[0]), reach[1]);
    const labels = Math.max(0, ...b.cells.flat().map((c) => width(c.text, size)));
    const right = Math.min(labels, room * 0.3) + 16;

    const options = Object.assign(base(scheme, size), {
      grid: { left: nameWidth + 14, right, top, bottom, containLabel: false },
      legend: { show: several, top: 0, left: 0, right: 0, padding: 0, itemGap: 16, icon: 'roundRect', textStyle: { fontSize: size, color: scheme.text }, inactiveColor: scheme.line, data: b.subjects, formatter: (n) => cut(n, size, room - 60) },
      tooltip: Object.assign(tooltip(scheme), {
        trigger: 'axis', axisPointer: { type: 'shadow' },
        formatter: (items) => {
          const tip = element('div', undefined, undefined, 'tip');
          element('b', b.cases[items[0].dataIndex], tip);
          const table = element('table', undefined, tip);
          for (const item of items.filter((i) => i.seriesType === 'bar')) {
            const c = b.cells[item.dataIndex][item.seriesIndex];
            if (!c.text) continue;
            const row = element('tr', undefined, table);
            const name = element('td', undefined, row);
            const dot = element('span', '■ ', name);
            dot.style.color = item.color;
            name.appendChild(document.createTextNode(item.seriesName));
            element('td', c.text, row);
            element('td', c.value !== null && c.low !== c.high ? bound(c.low, b.unit) + ' – ' + bound(c.high, b.unit) : '', row);
          }
          return tip;
        },
      }),
      yAxis: {
        type: 'category', inverse: true, data: b.cases.map((c) => cut(c, size, nameWidth * 2)),
        axisTick: { show: false }, axisLine: { lineStyle: { color: scheme.soft } },
        axisLabel: { fontSize: size, color: scheme.text, width: nameWidth, overflow: 'break', interval: 0, lineHeight: Math.round(size * 1.15) },
      },
      xAxis: Object.assign({
        type: b.log ? 'log' : 'value', splitLine: { lineStyle: { color: scheme.line } }, splitNumber: room < 600 ? 3 : 6,
        axisLabel: { fontSize: size * 0.9, color: scheme.soft, hideOverlap: true, formatter: (x) => short(x, b.unit) },
      }, b.log ? { min: b.low, startValue: b.low } : { max: most > 0 ? undefined : least < 0 ? 0 : 1, min: least < 0 ? undefined : 0 }),
      series: b.subjects.map((name, i) => ({
        type: 'bar', name, barGap: '8%', barCategoryGap: '22%', barMaxWidth: thick * 1.4,
        itemStyle: { color: names.get(name), borderRadius: [0, 3, 3, 0] },
        data: b.cells.map((row, at) => {
          const value = b.log && row[i].value !== null ? Math.max(row[i].value, b.low) : row[i].value;
          return b.turned ? { value, itemStyle: { color: names.get(b.cases[at]) } } : value;
        }),
        markLine: b.unit === '×' && i === 0 && !b.log ? { silent: true, symbol: 'none', label: { show: false }, lineStyle: { color: scheme.soft, type: 'dashed' }, data: [{ xAxis: 1 }] } : undefined,
      })),
    });
    for (const [i, name] of b.subjects.entries()) {
      options.series.push({
        type: 'custom', name, silent: true, z: 5, clip: false, itemStyle: { color: names.get(name) },
        data: b.cells.map((row, at) => (row[i].value === null ? [0, 0, at] : [within(row[i].low ?? -Infinity), within(row[i].high ?? Infinity), at])), encode: { x: [0, 1], y: 2 },
        renderItem: (params, api) => whisker(b, i, params, api, scheme, size),
      });
    }
    return { options, height };
  }

  // whisker draws the bounds of one bar and writes its figure behind them.
  function whisker(b, subject, params, api, scheme, size) {
    const cell = b.cells[params.dataIndex][subject];
    const seen = api.currentSeriesIndices().filter((s) => s < b.subjects.length);
    const at = api.barLayout({ count: seen.length, barGap: '8%', barCategoryGap: '22%' })[seen.indexOf(subject)];
    if (!at) return undefined;
    const clamp = (x) => (b.log ? Math.max(x, b.low) : x);
    const [, middle] = api.coord([clamp(b.low || 0), params.dataIndex]);
    const y = middle + at.offsetCenter;
    const x = (value) => api.coord([clamp(value), params.dataIndex])[0];
    const plot = params.coordSys;
    const children = [];
    let end = x(b.log ? b.low : 0);
    if (cell.value !== null) {
      end = Math.max(end, x(cell.value));
      if (cell.low !== cell.high) {
        const low = x(cell.low ?? -1e300), high = x(cell.high ?? 1e300), half = Math.min(at.width * 0.28, 6);
        const from = Math.max(low, plot.x), to = Math.min(high, plot.x + plot.width);
        const style = { stroke: scheme.text, lineWidth: 1.5, fill: 'none', opacity: 0.85 };
        children.push({ type: 'line', shape: { x1: from, y1: y, x2: to, y2: y }, style });
        for (const cap of [low, high].filter((c) => c >= from && c <= to)) {
          children.push({ type: 'line', shape: { x1: cap, y1: y - half, x2: cap, y2: y + half }, style });
        }
        end = Math.max(end, to);
      }
    }
    children.push({
      type: 'text', x: end + 6, y,
      style: { text: cell.text, fontSize: Math.min(size, Math.max(at.width * 1.05, size * 0.75)), fontFamily: family, fill: cell.value === null ? scheme.soft : scheme.text, verticalAlign: 'middle' },
    });
    return { type: 'group', children };
  }

  // ---- charts above one another

  const mostRows = 4; // of labels of marks

  function stackChart(s, scheme, size, room) {
    const single = s.charts.length === 1;
    const plot = Math.round(size * (single ? 22 : 11));
    const options = Object.assign(base(scheme, size), { title: [], legend: [], grid: [], xAxis: [], yAxis: [], series: [] });
    const left = 14 + Math.max(...s.charts.map((c) => {
      const y = Math.max(...c.lines.flatMap((l) => l.points.map((p) => Math.max(p[1] ?? 0, p[3] ?? 0))), 0);
      return Math.max(width(short(y * 1.1, c.y.unit), size * 0.9), width('0.88', size * 0.9));
    }));
    const right = 24;
    const marks = [];
    for (const c of s.charts) for (const m of c.marks || []) if (!marks.some((o) => o.x === m.x)) marks.push(m);
    marks.sort((a, b) => a.x - b.x);
    const span = s.high - s.low || 1;
    const place = (x) => (s.x.log ? Math.log(x / s.low) / Math.log(s.high / s.low) : (x - s.low) / span) * (room - left - right);
    const known = colours(scheme, report.subjects);
    let top = 3;
    for (const [i, c] of s.charts.entries()) {
      const own = c.marks || [];
      const lines = c.lines || [];
      // Beside the title, or below it, stands what is drawn upwards.
      const one = lines.length === 1 && lines[0].name !== c.title ? lines[0].name : '';
      const unit = c.y.unit && c.y.unit !== c.y.name ? c.y.unit : '';
      const upwards = [c.y.name === c.title ? unit : c.y.name + (unit ? ' (' + unit + ')' : ''), one].filter((n, at, all) => n && all.indexOf(n) === at).join(', ');
      const heading = cut(c.title, size * 1.2, room - (i === 0 ? 150 : 10), 600);
      const end = width(heading, size * 1.2, 600) + size;
      options.title.push({ text: heading, left: 0, top, padding: 0, textStyle: { fontSize: size * 1.2, fontWeight: 600, color: scheme.text } });
      const beside = end + width(upwards, size) < room - (i === 0 ? 150 : 10);
      options.title.push({ text: beside ? upwards : cut(upwards, size, room - 10), left: beside ? end : 0, top: beside ? top + size * 0.16 : top + size * 1.6, padding: 0, textStyle: { fontSize: size, fontWeight: 400, color: scheme.soft } });
      top += size * (beside ? 1.8 : 3.1);
      if (c.note) {
        options.title.push({ text: c.note, left: 0, top, padding: 0, textStyle: { fontSize: size * 0.9, fontWeight: 400, color: scheme.soft, width: room - 20, overflow: 'break' } });
        top += size * 1.3 * Math.ceil(width(c.note, size * 0.9) / (room - 40)) + 2;
      }
      if (lines.length > 1) {
        options.legend.push({ top, left: 0, right: 0, padding: 0, itemGap: 16, icon: 'roundRect', itemHeight: 5, data: lines.map((l) => key(i, l)), formatter: (k) => cut(k.slice(k.indexOf('\u0000') + 1), size, room - 60), textStyle: { fontSize: size * 0.95, color: scheme.text }, inactiveColor: scheme.line });
        top += rows(lines.map((l) => l.name), room, size * 0.95) * (size + 10);
      }
      // Labels of marks that are near each other stand in rows above one another.
      const ends = [];
      const labelled = own.slice().sort((a, b) => a.x - b.x).map((m) => {
        const half = width(m.text, size * 0.9, 600) / 2 + 6;
        const x = Math.min(Math.max(place(m.x), half - left), room - left - half);
        let row = 0;
        while (ends[row] !== undefined && x - half < ends[row]) row++;
        ends[row] = x + half;
        return { mark: m, row, shift: x - place(m.x) };
      });
      const labels = Math.min(ends.length, mostRows);
      top += labels * size * 1.3 + size * 0.7;
      const bottom = single || i === s.charts.length - 1;
      options.grid.push({ left, right, top, height: plot });
      options.xAxis.push({
        type: s.x.log ? 'log' : 'value', gridIndex: i, min: s.low, max: s.high,
        name: bottom ? s.x.name + (s.x.unit ? ' (' + s.x.unit + ')' : '') : '', nameLocation: 'middle', nameGap: size * 2, nameTextStyle: { fontSize: size, color: scheme.soft },
        axisLine: { onZero: false, lineStyle: { color: scheme.soft } }, axisTick: { show: bottom },
        axisLabel: { show: bottom, fontSize: size * 0.9, color: scheme.soft, hideOverlap: true, showMinLabel: !s.x.log || undefined, formatter: (x) => short(x, s.x.unit === 's' ? '' : s.x.unit) },
        splitLine: { show: s.x.log, lineStyle: { color: scheme.line } },
        axisPointer: { show: true, snap: true, lineStyle: { color: scheme.soft, type: 'dashed' }, label: { show: bottom, formatter: (p) => withUnit(p.value, s.x.unit) } },
      });
      options.yAxis.push({
        type: c.y.log ? 'log' : 'value', gridIndex: i, min: c.y.log ? lowest(c) : c.from || undefined, splitNumber: single ? 6 : 4, scale: Boolean(c.from),
        ...(highest(c) > 0 || c.y.log ? {} : { max: 1, interval: 1 }),
        axisLabel: { fontSize: size * 0.9, color: scheme.soft, formatter: (y) => short(y, c.y.unit), hideOverlap: true },
        splitLine: { lineStyle: { color: scheme.line } }, axisLine: { show: false }, axisPointer: { show: false },
      });
      const names = colours(scheme, lines.map((l) => l.name).filter((n) => !known.has(n)));
      const alone = lines.length === 1 && !known.has(lines[0].name);
      for (const l of lines) {
        const colour = alone ? scheme.own[0] : known.get(l.name) || names.get(l.name);
        const limit = /^(limit|max)/i.test(l.name);
        options.series.push({
          type: l.bars ? 'bar' : 'line', name: key(i, l), xAxisIndex: i, yAxisIndex: i, data: l.points.map((p) => [p[0], p[1]]),
          step: l.step ? 'end' : false, showSymbol: s.x.log || l.points.length < 13, symbol: 'circle', symbolSize: 7, barMaxWidth: 24,
          lineStyle: { width: limit ? 2 : 2.5, color: limit ? scheme.mark : colour, type: limit ? 'dashed' : 'solid' },
          itemStyle: { color: limit ? scheme.mark : colour }, areaStyle: alone && !l.bars && !c.y.log ? { opacity: 0.12, color: colour } : undefined, emphasis: { disabled: true },
        });
        const bounded = l.points.filter((p) => p[2] !== p[3]);
        if (bounded.length) options.series.push(bounds(i, l, bounded, limit ? scheme.mark : colour));
      }
      if (marks.length) {
        options.series.push({
          type: 'line', name: '', xAxisIndex: i, yAxisIndex: i, data: [], silent: true, tooltip: { show: false },
          markLine: {
            symbol: 'none', silent: true, lineStyle: { color: scheme.mark, width: 1.5, type: [5, 4] },
            data: marks.map((m) => {
              const l = labelled.find((o) => o.mark.x === m.x);
              return { xAxis: m.x, label: l && l.row < mostRows ? { show: true, formatter: () => l.mark.text, position: 'end', distance: 4 + l.row * size * 1.3, offset: [l.shift, 0], fontSize: size * 0.9, fontWeight: 600, color: scheme.mark } : { show: false } };
            }),
          },
        });
      }
      top += plot + (bottom ? size * 3.2 : size * 1.7);
    }
    options.axisPointer = { link: [{ xAxisIndex: 'all' }] };
    options.tooltip = Object.assign(tooltip(scheme), { trigger: 'axis', formatter: (items) => stackTip(s, items) });
    return { options, height: top };
  }

  // key is the name of a series: charts above one another may have lines of one name.
  function key(chart, line) {
    return chart + '\u0000' + line.name;
  }

  function highest(c) {
    return Math.max(...c.lines.flatMap((l) => l.points.map((p) => Math.max(Math.abs(p[1] ?? 0), Math.abs(p[3] ?? 0)))), 0);
  }

  function lowest(c) {
    const positive = c.lines.flatMap((l) => l.points.map((p) => p[1])).filter((y) => y > 0);
    return positive.length ? 10 ** Math.floor(Math.log10(Math.min(...positive))) : undefined;
  }

  function bounds(chart, l, points, colour) {
    return {
      type: 'custom', name: key(chart, l), xAxisIndex: chart, yAxisIndex: chart, silent: true, tooltip: { show: false }, itemStyle: { color: colour },
      data: points.map((p) => [p[0], p[2], p[3]]), encode: { x: 0, y: [1, 2] },
      renderItem: (params, api) => {
        const low = api.coord([api.value(0), api.value(1)]), high = api.coord([api.value(0), api.value(2)]);
        const style = { stroke: colour, lineWidth: 1.5, fill: 'none', opacity: 0.8 };
        const cap = (at) => ({ type: 'line', shape: { x1: at[0] - 4, y1: at[1], x2: at[0] + 4, y2: at[1] }, style });
        return { type: 'group', children: [{ type: 'line', shape: { x1: low[0], y1: low[1], x2: high[0], y2: high[1] }, style }, cap(low), cap(high)] };
      },
    };
  }

  function stackTip(s, items) {
    const tip = element('div', undefined, undefined, 'tip');
    const shown = items.filter((i) => i.seriesType !== 'custom' && i.seriesName);
    if (!shown.length) return tip;
    element('b', s.x.name + ' ' + withUnit(shown[0].value[0], s.x.unit), tip);
    const table = element('table', undefined, tip);
    let last = -1;
    for (const item of shown) {
      const chart = s.charts[item.axisIndex];
      if (!chart) continue;
      if (item.axisIndex !== last && s.charts.length > 1) {
        element('td', chart.title, element('tr', undefined, table), 'of').colSpan = 2;
      }
      last = item.axisIndex;
      const row = element('tr', undefined, table);
      const name = element('td', undefined, row);
      element('span', '■ ', name).style.color = item.color;
      name.appendChild(document.createTextNode(item.seriesName.slice(item.seriesName.indexOf('\u0000') + 1)));
      element('td', item.value[1] === null ? '' : withUnit(item.value[1], chart.y.unit), row);
    }
    return tip;
  }

  // ---- places, sizes, themes

  function draw(d, wide) {
    const full = document.fullscreenElement === d.figure;
    const room = wide || d.place.clientWidth;
    let size = full ? Math.max(16, Math.min(26, Math.round(room / 70))) : room < 500 ? 12 : 15;
    let { options, height } = d.make(schemes[theme], size, room);
    while (full && size > 9 && height > window.innerHeight - 140) ({ options, height } = d.make(schemes[theme], --size, room));
    if (d.echarts) d.echarts.dispose();
    d.place.style.height = Math.ceil(height) + 'px';
    d.echarts = echarts.init(d.place, null, { renderer: 'svg', width: room, height: Math.ceil(height) });
    d.echarts.setOption(options);
    d.room = room;
  }

  function drawAll(wide) {
    root.dataset.theme = theme;
    for (const d of drawn) draw(d, wide);
  }

  // picture saves a chart as it stands, twice as fine, for a slide.
  function picture(d) {
    const { options, height } = d.make(schemes[theme], 15, d.room);
    const place = element('div');
    const copy = echarts.init(place, null, { renderer: 'canvas', width: d.room, height: Math.ceil(height), devicePixelRatio: 2 });
    copy.setOption(options);
    const link = element('a');
    link.href = copy.getDataURL({ type: 'png', pixelRatio: 2, backgroundColor: schemes[theme].back });
    link.download = 'chart.png';
    link.click();
    copy.dispose();
  }

  function add(place, make) {
    const d = { place, make, figure: place.closest('figure') };
    const buttons = element('div', undefined, d.figure, 'buttons');
    const button = (text, title, run) => {
      const b = element('button', text, buttons);
      b.type = 'button';
      b.title = title;
      b.addEventListener('click', run);
    };
    button('full screen', 'show this chart alone, larger', () => (document.fullscreenElement ? document.exitFullscreen() : d.figure.requestFullscreen()));
    button('PNG', 'save this chart as a picture', () => picture(d));
    drawn.push(d);
  }

  for (const place of document.querySelectorAll('[data-bars]')) {
    const b = report.bars[Number(place.dataset.bars)];
    add(place, (scheme, size, room) => barChart(b, scheme, size, room));
  }
  for (const place of document.querySelectorAll('[data-stack]')) {
    const s = report.stacks[Number(place.dataset.stack)];
    add(place, (scheme, size, room) => stackChart(s, scheme, size, room));
  }

  const button = document.getElementById('theme');
  function setTheme(to) {
    theme = to;
    button.textContent = theme === 'dark' ? 'light' : 'dark';
    drawAll();
  }
  button.hidden = false;
  button.addEventListener('click', () => setTheme(theme === 'dark' ? 'light' : 'dark'));
  media.addEventListener('change', () => setTheme(media.matches ? 'dark' : 'light'));
  document.addEventListener('fullscreenchange', () => drawAll());
  let timer;
  window.addEventListener('resize', () => { clearTimeout(timer); timer = setTimeout(() => drawAll(), 100); });
  let before;
  window.addEventListener('beforeprint', () => { before = theme; theme = 'light'; drawAll(680); });
  window.addEventListener('afterprint', () => { theme = before; drawAll(); });
  setTheme(theme);
})();
