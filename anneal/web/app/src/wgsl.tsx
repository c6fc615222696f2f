// WGSL in colours: a tokeniser of its own, for one line at a time.
const WORDS = new Set("fn var let const if else for loop while return break continue struct switch case default enable override true false discard".split(" "));
const TYPES = /^(?:[fiu](?:8|16|32|64)|bool|vec[234](?:[fiuh])?|mat\dx\d|array|atomic|ptr|read|read_write|workgroup|storage|uniform|function|private)$/;
const TOKEN = /(\/\/.*)|(@[a-z_]+)|([A-Za-z_]\w*)|(0x[0-9a-fA-F]+[ui]?|\d+(?:\.\d*)?(?:e[-+]?\d+)?[fuhi]?|\.\d+[fh]?)|(\s+)|([^\w\s])/g;

export function Wgsl({ text }: { text: string }) {
  const out = [];
  for (const m of text.matchAll(TOKEN)) {
    const [all, comment, attribute, word, number] = m;
    if (comment) out.push(<i class="t-comment">{comment}</i>);
    else if (attribute) out.push(<i class="t-attr">{attribute}</i>);
    else if (number) out.push(<i class="t-num">{number}</i>);
    else if (word) out.push(WORDS.has(word) ? <i class="t-word">{word}</i> : TYPES.test(word) ? <i class="t-type">{word}</i> : text[m.index + all.length] === "(" ? <i class="t-call">{word}</i> : word);
    else out.push(all);
  }
  return <>{out}</>;
}
