// Draws the charts of the page from their specifications. Colours come from the style sheet, shapes and dashes from here.
(() => {
  "use strict";
  const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [4, 4], [12, 4]];
  const SERIES = 6;
  const drawn = [];

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    return {
      text: value("--text"), quiet: value("--quiet"), line: value("--line"), surface: value("--surface"),
      series: Array.from({ length: SERIES }, (_, k) => value(`--series-${k}`)),
    };
  }

  function axis({ title, low, high, log, whole }, colour) {
    return {
      type: log ? "logarithmic" : "linear",
      min: low ?? undefined,
      max: high ?? undefined,
      title: { display: true, text: title, color: colour.text },
      ticks: {
        color: colour.quiet, precision: whole ? 0 : undefined, maxRotation: 0,
        ...(log ? { callback: (value) => (Number.isInteger(Math.log10(value)) ? value.toExponential() : "") } : {}),
      },
      grid: { color: colour.line },
      border: { color: colour.quiet },
    };
  }

  function curve(series, k, colour) {
    const own = series.quiet ? colour.quiet : colour.series[k % SERIES];
    const small = series.points.length > 40 ? 0 : 3.5;
    return {
      label: series.label,
      data: series.points.map(([x, y]) => ({ x, y })),
      showLine: series.line,
      stepped: series.stepped ? "before" : false,
      borderColor: own,
      backgroundColor: series.line ? own : `${own}b0`,
      borderWidth: series.quiet ? 1.2 : 2,
      borderDash: series.dashed ? (series.quiet ? [3, 4] : DASHES[1 + (k % (DASHES.length - 1))]) : [],
      pointStyle: series.mark,
      pointRadius: series.quiet || series.stepped ? 0 : series.sizes.length ? series.sizes : series.line ? small : 5,
      pointHoverRadius: series.quiet ? 0 : 7,
      pointHitRadius: 8,
      names: series.names,
      clip: 16,
    };
  }

  function bar(series, k, colour) {
    return {
      label: series.label, data: series.values,
      backgroundColor: k === 0 ? colour.series[0] : `${colour.series[k % SERIES]}99`,
      borderColor: colour.series[k % SERIES], borderWidth: 1.5, borderDash: DASHES[k % DASHES.length],
    };
  }

  // The legend shows the line of a curve, with its dashes, or the mark of its points.
  function labels(made, curves) {
    return made.data.datasets.map((dataset, k) => ({
      text: dataset.label, datasetIndex: k, hidden: !made.isDatasetVisible(k), fontColor: made.options.plugins.legend.labels.color,
      fillStyle: dataset.backgroundColor, strokeStyle: dataset.borderColor, lineWidth: curves ? 2 : 1, lineDash: dataset.borderDash,
      pointStyle: curves ? (dataset.showLine ? "line" : dataset.pointStyle) : "rect",
    }));
  }

  function number(value) {
    return Number(value.toPrecision(4)).toString();
  }

  function options(chart, colour) {
    const curves = chart.type === "curves";
    let x = curves ? axis(chart.x, colour) : { ...axis(chart.x, colour), type: "category" };
    let y = axis(curves ? chart.y : { ...chart.y, low: 0 }, colour);
    if (chart.horizontal) [x, y] = [y, { ...x, ticks: { ...x.ticks, autoSkip: false } }];
    return {
      animation: false,
      indexAxis: chart.horizontal ? "y" : "x",
      layout: { padding: { right: 16 } },
      responsive: true,
      maintainAspectRatio: false,
      devicePixelRatio: Math.max(2, window.devicePixelRatio), // so that it prints sharply
      scales: { x: { ...x, stacked: chart.stacked }, y: { ...y, stacked: chart.stacked } },
      plugins: {
        legend: {
          display: chart.series.length > 1,
          labels: { color: colour.text, usePointStyle: true, boxHeight: 7, generateLabels: (made) => labels(made, curves) },
        },
        tooltip: {
          displayColors: false,
          callbacks: {
            title: (items) => (curves ? items[0].dataset.names[items[0].dataIndex] ?? "" : items[0].label),
            label: ({ dataset, parsed }) => curves
              ? `${dataset.label}: ${number(parsed.x)}, ${number(parsed.y)}`
              : `${dataset.label}: ${number(chart.horizontal ? parsed.x : parsed.y)}`,
          },
        },
      },
    };
  }

  function datasets(chart, colour) {
    return chart.series.map((series, k) => (chart.type === "curves" ? curve : bar)(series, k, colour));
  }

  function draw(canvas) {
    const chart = JSON.parse(document.getElementById(canvas.dataset.chart).textContent);
    const colour = colours();
    if (chart.horizontal) canvas.parentElement.style.height = `${90 + 17 * chart.categories.length * (1 + chart.series.length)}px`;
    const type = chart.type === "curves" ? "scatter" : "bar";
    const data = { labels: chart.categories, datasets: datasets(chart, colour) };
    drawn.push([new Chart(canvas, { type, data, options: options(chart, colour) }), chart]);
  }

  function recolour() {
    const colour = colours();
    for (const [made, chart] of drawn) {
      made.data.datasets = datasets(chart, colour);
      made.options = options(chart, colour);
      made.resize();
      made.update("none");
    }
  }

  function print(on) {
    document.documentElement.classList.toggle("printing", on);
    recolour();
  }

  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.font.size = 12.5;
  document.querySelectorAll("canvas[data-chart]").forEach(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
})();
