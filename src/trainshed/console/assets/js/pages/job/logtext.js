// @ts-check
// A line of a log as pieces of plain text. Terminal colours become classes; other control sequences, and characters
// that change the reading direction, are shown as marks.

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
// CSI, OSC up to its end, and two-character escapes. Every part has a bounded alphabet: no backtracking. The log keeps
// the escape character as the four characters \x1b, so a colour may have this form too.
const ESCAPE = /\x1b(?:\[([0-9;:<=>?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|\\x1b\[([0-9;:]*)(m)/g;
const MARKS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/**
 * @typedef {{text: string, style: string}} Piece
 * @typedef {{colour: string, bold: boolean}} Style
 */

/** @param {string} character */
function mark(character) {
  const code = character.codePointAt(0) ?? 0;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `[U+${code.toString(16).toUpperCase().padStart(4, "0")}]`;
}

/**
 * Text with marks for invisible and reordering characters.
 * @param {string} text
 * @returns {string}
 */
export function visible(text) {
  return text.replace(MARKS, mark);
}

/**
 * The line without terminal codes, for copies and files.
 * @param {string} text
 * @returns {string}
 */
export function plain(text) {
  return visible(text.replace(ESCAPE, ""));
}

/** @param {Style} style @param {string} codes @returns {Style} */
function restyled(style, codes) {
  let { colour, bold } = style;
  for (const code of codes === "" ? ["0"] : codes.split(/[;:]/)) {
    const number = Number(code);
    if (number === 0) [colour, bold] = ["", false];
    else if (number === 1) bold = true;
    else if (number === 22) bold = false;
    else if (number === 39) colour = "";
    else if (number === 38 || number === 48)
      break; // a colour out of 256: its numbers are no codes of their own
    else if (number >= 30 && number <= 37) colour = COLOURS[number - 30];
    else if (number >= 90 && number <= 97) colour = COLOURS[number - 90];
  }
  return { colour, bold };
}

/** @param {Style} style */
function className({ colour, bold }) {
  return [colour && `ansi-${colour}`, bold && "ansi-bold"].filter(Boolean).join(" ");
}

/**
 * The pieces of a line, each with the class of its style.
 * @param {string} text
 * @returns {Piece[]}
 */
export function pieces(text) {
  if (!text.includes("\x1b") && !text.includes("\\x1b[")) return [{ text: visible(text), style: "" }];
  /** @type {Piece[]} */
  const found = [];
  let style = { colour: "", bold: false };
  let from = 0;
  for (const escape of text.matchAll(ESCAPE)) {
    if (escape.index > from) found.push({ text: visible(text.slice(from, escape.index)), style: className(style) });
    from = escape.index + escape[0].length;
    if (escape[2] === "m" || escape[4] === "m") style = restyled(style, escape[1] ?? escape[3]);
  }
  if (from < text.length) found.push({ text: visible(text.slice(from)), style: className(style) });
  return found;
}

/**
 * The pieces, split at the matches of a search.
 * @param {Piece[]} given
 * @param {string} search
 * @returns {(Piece & {hit?: boolean})[]}
 */
export function highlighted(given, search) {
  if (!search) return given;
  const wanted = search.toLowerCase();
  return given.flatMap((piece) => {
    const folded = piece.text.toLowerCase();
    if (folded.length !== piece.text.length) return [piece]; // places in one are not those in the other
    /** @type {(Piece & {hit?: boolean})[]} */
    const found = [];
    let from = 0;
    for (let at = folded.indexOf(wanted); at >= 0; at = folded.indexOf(wanted, from)) {
      if (at > from) found.push({ ...piece, text: piece.text.slice(from, at) });
      found.push({ ...piece, text: piece.text.slice(at, at + wanted.length), hit: true });
      from = at + wanted.length;
    }
    if (from < piece.text.length) found.push({ ...piece, text: piece.text.slice(from) });
    return found;
  });
}
