// The page at /: asks /status every two seconds, and chats with the model. Whatever comes from the
// server is put in as text, never as HTML.
'use strict';

const POLL_MS = 2000;
const HISTORY_S = 300;  // of the charts
const WINDOW_S = 30;    // of the rates and quantiles in them

const $ = (id) => document.getElementById(id);
const count = new Intl.NumberFormat('en', {maximumFractionDigits: 0});
const small = new Intl.NumberFormat('en', {maximumSignificantDigits: 3});

let samples = [];  // of /status: {t, epoch, generated, counts}
let points = [];   // of the charts: {t, rate, p50, p95}
let shown = '';    // the group whose rows are there

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function bytes(n) {
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; ++i) n /= 1024;
  return `${small.format(n)} ${units[i]}`;
}

function seconds(s) {
  if (s === null || !Number.isFinite(s)) return '-';
  return s < 1 ? `${small.format(s * 1000)} ms` : `${small.format(s)} s`;
}

function duration(s) {
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  return s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} days`;
}

function headers(more) {
  const key = $('key').value.trim();
  return key ? {...more, Authorization: `Bearer ${key}`} : {...more};
}

// Why an answer is an error, in the server's words.
async function reason(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}

// As the server computes them of a histogram; null without a value.
function quantile(bounds, counts, q) {
  const all = counts.reduce((sum, n) => sum + n, 0);
  if (all === 0) return null;
  let upTo = 0;
  let low = bounds[0];  // the first bucket is wide: its bound is all that is known
  for (let i = 0; i < bounds.length; ++i) {
    if (counts[i] > 0 && upTo + counts[i] >= q * all) {
      return low + (bounds[i] - low) * (q * all - upTo) / counts[i];
    }
    upTo += counts[i];
    low = bounds[i];
  }
  return low;
}

// ---- the numbers of now

function showProblem(text) {
  $('problem').hidden = !text;
  $('problem').textContent = text;
}

function showPhase(text, isProblem) {
  $('phase').textContent = text;
  $('phase').className = `phase ${isProblem ? 'problem' : text}`;
}

function remember(status) {
  const now = performance.now() / 1000;
  const last = samples[samples.length - 1];
  if (last && last.epoch !== status.epoch) {
    samples = [];
    points = [];
  }
  const sample = {t: now, epoch: status.epoch, generated: status.totals.generation_tokens,
                  counts: status.first_token_seconds.counts};
  samples.push(sample);
  samples = samples.filter((one) => now - one.t <= WINDOW_S + POLL_MS / 1000);
  const before = samples[0];
  const previous = samples[samples.length - 2];
  const counts = sample.counts.map((n, i) => n - before.counts[i]);
  const bounds = status.first_token_seconds.bounds;
  points.push({
    t: now,
    rate: previous ? (sample.generated - previous.generated) / (now - previous.t) : null,
    p50: quantile(bounds, counts, 0.5),
    p95: quantile(bounds, counts, 0.95),
  });
  points = points.filter((one) => now - one.t <= HISTORY_S);
}

function showNow(status) {
  const kv = status.kv_blocks;
  const point = points[points.length - 1];
  const before = samples[0];
  const span = point.t - before.t;
  $('running').textContent = count.format(status.requests.running);
  $('running_of').textContent = `of ${count.format(status.limits.max_num_seqs)} at most`;
  $('waiting').textContent = count.format(status.requests.waiting);
  $('waiting_of').textContent = status.requests.waiting > 0
      ? `${count.format(status.requests.waiting_tokens)} tokens, oldest ${seconds(status.requests.oldest_waiting_s)}`
      : `room for ${count.format(status.limits.max_num_queued_reqs)}`;
  $('kv').textContent = `${small.format(kv.all ? 100 * kv.used / kv.all : 0)} %`;
  $('kv_of').textContent = `${count.format(kv.used)} of ${count.format(kv.all)} blocks of ${kv.tokens_each} tokens`;
  $('rate').textContent = span > 0
      ? small.format((status.totals.generation_tokens - before.generated) / span) : '-';
  $('rate_of').textContent = `mean of ${WINDOW_S} s; ${count.format(status.totals.generation_tokens)} in all`;
  const recent = point.p50 !== null;
  const first = status.first_token_seconds;
  const atMost = (value) => (value !== null && value <= first.bounds[0] ? '<= ' : '') + seconds(value);
  $('ttft').textContent = atMost(recent ? point.p50 : first.p50);
  $('ttft_of').textContent = first.count === 0 ? 'no request yet'
      : `median ${recent ? `of ${WINDOW_S} s` : 'since READY'}; 95 %: ${atMost(recent ? point.p95 : first.p95)}`;
  const causes = [];
  if (status.steps.short_of_blocks > 0) causes.push(`KV blocks in ${count.format(status.steps.short_of_blocks)} steps`);
  if (status.steps.short_of_slots > 0) causes.push(`slots (max_num_seqs) in ${count.format(status.steps.short_of_slots)} steps`);
  $('short').textContent = causes.length === 0 ? 'No request has waited for KV blocks or slots since READY.'
      : `Since READY requests waited for ${causes.join(', and for ')} of ${count.format(status.steps.all)}.`;
}

// ---- charts

function line(svg, className, values, top) {
  const now = performance.now() / 1000;
  let run = [];
  const flush = () => {
    if (run.length > 1) {
      const made = document.createElementNS('http://www.w3.org/2000/svg', 'polyline');
      made.setAttribute('class', className);
      made.setAttribute('points', run.join(' '));
      svg.append(made);
    }
    run = [];
  };
  points.forEach((point, i) => {
    if (values[i] === null) return flush();
    const x = 300 * (1 - (now - point.t) / HISTORY_S);
    run.push(`${x.toFixed(1)},${(78 - 74 * values[i] / top).toFixed(1)}`);
  });
  flush();
}

function showCharts() {
  const rates = points.map((point) => point.rate);
  const mostRate = Math.max(1, ...rates.filter((rate) => rate !== null));
  $('rate_chart').replaceChildren();
  line($('rate_chart'), 'line1', rates, mostRate);
  $('rate_top').textContent = `- top: ${small.format(mostRate)}`;
  const median = points.map((point) => point.p50);
  const high = points.map((point) => point.p95);
  const mostTime = Math.max(0.001, ...high.filter((time) => time !== null));
  $('ttft_chart').replaceChildren();
  line($('ttft_chart'), 'line1', median, mostTime);
  line($('ttft_chart'), 'line2', high, mostTime);
  $('ttft_top').textContent = `- top: ${seconds(mostTime)}`;
}

// ---- memory

const PARTS = [
  ['weights', 'weights', (rank) => rank.arenas.weights || 0],
  ['arenas', 'other arenas', (rank) => Object.entries(rank.arenas)
      .reduce((sum, [term, n]) => sum + (term === 'weights' || term === 'kv' ? 0 : n), 0)],
  ['kv-used', 'KV in use', (rank, kv) => kv.used * rank.kv_block_bytes],
  ['kv-cached', 'KV cached', (rank, kv) => kv.cached * rank.kv_block_bytes],
  ['kv-free', 'KV free', (rank, kv) =>
      Math.max(0, (rank.arenas.kv || 0) - (kv.used + kv.cached) * rank.kv_block_bytes)],
  ['others', 'used by others', (rank) => rank.others_bytes],
  ['reserve', 'driver and reserve', (rank) => rank.driver_bytes + rank.reserve_bytes],
  ['free', 'free', (rank) => rank.free_bytes],
];

// A bar of all memory, and one of the KV cache alone, which may be a small part of it.
function makeRank(rank, status) {
  const row = element('div', 'rank');
  row.id = `rank${rank.rank}`;
  const name = element('div', 'name');
  name.append(element('b', '', `Rank ${rank.rank}`), element('span', '', `${rank.host} ${rank.device}`),
              element('span', 'total', ''));
  if (rank.rank === status.binding.rank) name.append(element('span', 'binds', `binds: ${status.binding.term}`));
  row.append(name);
  for (const [label, parts] of [['memory', PARTS], ['KV', PARTS.filter(([key]) => key.startsWith('kv-'))]]) {
    const lineOf = element('div', 'line');
    const bar = element('div', 'bar');
    bar.setAttribute('role', 'img');
    for (const [key] of parts) bar.append(element('i', key));
    lineOf.append(element('span', '', label), bar);
    row.append(lineOf);
  }
  return row;
}

function fillBar(bar, parts, rank, kv, label) {
  const sizes = parts.map(([, , of]) => of(rank, kv));
  const all = Math.max(1, sizes.reduce((sum, n) => sum + n, 0));
  [...bar.children].forEach((piece, i) => { piece.style.width = `${100 * sizes[i] / all}%`; });
  const text = parts.map(([, name], i) => `${name} ${bytes(sizes[i])}`).join(', ');
  bar.setAttribute('aria-label', `${label}: ${text}`);
  bar.title = text;
}

function makeTable(status) {
  const terms = [...new Set(status.ranks.flatMap((rank) => Object.keys(rank.arenas)))];
  const columns = [
    ['rank', (rank) => `${rank.rank}`], ['host', (rank) => rank.host], ['device', (rank) => rank.device],
    ['total', (rank) => bytes(rank.total_bytes)],
    ...terms.map((term) => [term, (rank) => bytes(rank.arenas[term] || 0)]),
    ['others', (rank) => bytes(rank.others_bytes)], ['driver', (rank) => bytes(rank.driver_bytes)],
    ['reserve', (rank) => bytes(rank.reserve_bytes)], ['free', (rank) => bytes(rank.free_bytes)],
    ['stranded KV', (rank) => bytes(rank.stranded_bytes)], ['own KV blocks', (rank) => count.format(rank.own_blocks)],
    ['KV bytes/token', (rank) => count.format(rank.kv_bytes_per_token)], ['KV rule', (rank) => rank.kv_rule],
  ];
  const head = element('tr');
  for (const [name] of columns) {
    const cell = element('th', '', name);
    cell.scope = 'col';
    head.append(cell);
  }
  const rows = status.ranks.map((rank) => {
    const row = element('tr');
    for (const [, of] of columns) row.append(element('td', '', of(rank)));
    return row;
  });
  $('ranks').replaceChildren(head, ...rows);
}

function showMemory(status) {
  const kv = status.kv_blocks;
  for (const rank of status.ranks) {
    const bars = $(`rank${rank.rank}`).querySelectorAll('.bar');
    fillBar(bars[0], PARTS, rank, kv, `Memory of rank ${rank.rank}`);
    fillBar(bars[1], PARTS.filter(([key]) => key.startsWith('kv-')), rank, kv, `KV cache of rank ${rank.rank}`);
    const device = rank.device_free_bytes === undefined ? '' : `, the device has ${bytes(rank.device_free_bytes)} free`;
    $(`rank${rank.rank}`).querySelector('.total').textContent =
        `${bytes(rank.total_bytes)}, ${bytes(rank.free_bytes)} left free${device}`;
  }
}

function bindingText(status) {
  const {rank, term} = status.binding;
  const row = status.ranks[rank];
  const stranded = status.ranks.reduce((sum, one) => sum + one.stranded_bytes, 0);
  return `Rank ${rank} binds, with ${term}: its memory determines the ${count.format(status.kv_blocks.all)} KV blocks ` +
      `that every rank has` + (row.kv_rule ? ` (${row.kv_rule})` : '') + '.' +
      (stranded > 0 ? ` The others could hold ${bytes(stranded)} more of KV.` : '');
}

// ---- what fits at once

function showCurve(status) {
  const most = Math.max(1, ...status.curve.map((point) => point.sequences));
  const slots = status.limits.max_num_seqs;
  $('curve').replaceChildren();
  for (const {tokens, sequences} of status.curve) {
    const bar = element('div', 'bar');
    const piece = element('i', 'kv-used');
    piece.style.width = `${100 * Math.log(1 + sequences) / Math.log(1 + most)}%`;
    bar.append(piece);
    $('curve').append(element('span', 'num', `${count.format(tokens)} tokens`), bar,
                      element('span', 'num', `${count.format(sequences)}${sequences >= slots ? ' (all slots)' : ''}`));
  }
  $('curve_text').textContent = 'Sequences of a length, prompt and answer together, that the KV cache holds; bars are ' +
      `logarithmic. At most ${count.format(slots)} run at once (max_num_seqs).`;
}

// ---- the group

function showGroup(status) {
  document.title = `${status.model} - Bulkhead`;
  $('model').textContent = status.model;
  $('facts').textContent = [status.architecture, status.dtype, status.device,
      `${status.tensor_parallel_size} rank${status.tensor_parallel_size === 1 ? '' : 's'}`,
      `max_model_len ${count.format(status.limits.max_model_len)}`,
      `max_num_batched_tokens ${count.format(status.limits.max_num_batched_tokens)}`,
      `up ${duration(status.uptime_s)}`].filter((text) => text).join(' | ');
  $('foot').textContent = `bulkhead ${status.version}, epoch ${status.epoch}`;
  showPhase(status.phase, status.phase !== 'serving');
  showCurve(status);
  if (shown === status.epoch) return;
  shown = status.epoch;
  $('binding').textContent = bindingText(status);
  $('legend').replaceChildren(...PARTS.map(([key, name]) => {
    const item = element('li');
    item.append(element('i', key), name);
    return item;
  }));
  $('bars').replaceChildren(...status.ranks.map((rank) => makeRank(rank, status)));
  makeTable(status);
  chats = status.chats;
  $('chat_text').textContent = chats ? 'A chat with the model; nothing is stored.'
      : 'The model has no chat template: it goes on with your text.';
}

async function poll() {
  try {
    const response = await fetch('status', {headers: headers(), cache: 'no-store'});
    if (!response.ok) {
      const why = await reason(response);
      showProblem(response.status === 401 ? `${why} (type an API key below)` : why);
      showPhase(`${response.status}`, true);
      return;
    }
    const status = await response.json();
    showProblem('');
    remember(status);
    showGroup(status);
    showNow(status);
    showCharts();
    showMemory(status);
  } catch (error) {
    showProblem(`The server does not answer: ${error.message}`);
    showPhase('unreachable', true);
  }
}

let timer = null;
async function pollAgain() {
  clearTimeout(timer);
  timer = null;
  if (document.hidden) return;  // goes on once the page is seen
  await poll();
  clearTimeout(timer);
  timer = setTimeout(pollAgain, POLL_MS);
}
document.addEventListener('visibilitychange', () => { if (!document.hidden) pollAgain(); });

// ---- the chat

let chats = true;
let conversation = [];  // as /v1/chat/completions takes it
let running = null;     // its AbortController

function addMessage(who, className) {
  const message = element('div', `message ${className}`);
  message.append(element('b', '', who));
  const reasoning = element('span', 'reasoning');
  const text = element('span', 'text');
  message.append(reasoning, text);
  $('messages').append(message);
  $('messages').scrollTop = $('messages').scrollHeight;
  return {reasoning, text};
}

// The data of each event.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split('\n\n');
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split('\n').filter((one) => one.startsWith('data: ')).map((one) => one.slice(6)).join('\n');
      if (data && data !== '[DONE]') yield JSON.parse(data);
    }
  }
}

function bodyOf(prompt) {
  const body = {stream: true, stream_options: {include_usage: true}, max_tokens: $('max_tokens').valueAsNumber,
                temperature: $('temperature').valueAsNumber};
  if (chats) return {...body, messages: [...conversation, {role: 'user', content: prompt}]};
  return {...body, prompt};
}

async function ask(prompt) {
  addMessage('You', 'user').text.textContent = prompt;
  const answer = addMessage('Model', 'model');
  const began = performance.now();
  let first = null;
  let tokens = null;
  let text = '';
  running = new AbortController();
  const response = await fetch(chats ? 'v1/chat/completions' : 'v1/completions', {
    method: 'POST', headers: headers({'Content-Type': 'application/json'}), body: JSON.stringify(bodyOf(prompt)),
    signal: running.signal});
  if (!response.ok) throw new Error(await reason(response));
  const box = $('messages');
  for await (const event of events(response)) {
    if (event.error) throw new Error(event.error.message);
    if (event.usage) tokens = event.usage.completion_tokens;
    if (event.choices.length === 0) continue;
    const choice = event.choices[0];
    const piece = chats ? choice.delta.content : choice.text;
    const reasoning = chats ? choice.delta.reasoning_content : undefined;
    if (first === null && (piece || reasoning)) first = performance.now();
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    if (reasoning) answer.reasoning.append(reasoning);
    if (piece) {
      text += piece;
      answer.text.append(piece);
    }
    if (atEnd) box.scrollTop = box.scrollHeight;
  }
  conversation.push({role: 'user', content: prompt}, {role: 'assistant', content: text});
  if (first !== null && tokens !== null) {
    const rate = tokens > 1 ? `, ${small.format((tokens - 1) / ((performance.now() - first) / 1000))} tokens/s` : '';
    $('timing').textContent = `${tokens} tokens, first after ${seconds((first - began) / 1000)}${rate}`;
  }
}

$('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const prompt = $('prompt').value;
  if (running || !prompt.trim()) return;
  $('send').disabled = true;
  $('stop').disabled = false;
  $('timing').textContent = '';
  try {
    $('prompt').value = '';
    await ask(prompt);
  } catch (error) {
    if (error.name === 'AbortError') {
      $('timing').textContent = 'stopped';
    } else {
      addMessage('Error', 'error').text.textContent = error.message;
      $('prompt').value = prompt;
    }
  } finally {
    running = null;
    $('send').disabled = false;
    $('stop').disabled = true;
  }
});
$('prompt').addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $('form').requestSubmit();
});
$('stop').addEventListener('click', () => { if (running) running.abort(); });
$('clear').addEventListener('click', () => {
  if (running) running.abort();
  conversation = [];
  $('messages').replaceChildren();
  $('timing').textContent = '';
});
$('key').addEventListener('change', pollAgain);

pollAgain();
