// Numbers as the tables have them: three significant digits, and one unit for all values of a column.
const three = (value) => {
  const size = Math.abs(value);
  if (size < 1e-9) return "0";
  if (size < 1e-4) return value.toExponential(2);
  return value.toLocaleString("en", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
};
const TIMES = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];
const BYTES = [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]];
// The unit in which all values together take the fewest characters; of equal ones the largest.
function unitOf(values, units) {
  const sizes = values.map(Math.abs).filter((size) => size > 0 && Number.isFinite(size));
  const characters = (amount) => { const power = Math.floor(Math.log10(amount)); return power < 0 ? 4 - power : power < 2 ? 4 : power + 1 + Math.floor(power / 3); };
  const total = (size) => sizes.reduce((sum, value) => sum + characters(value / size), 0);
  return units.reduce((best, unit) => (total(unit[1]) < total(best[1]) ? unit : best));
}
const figures = (value, units) => {
  const [name, size] = unitOf([value], units);
  return `${name === "B" ? Math.round(value).toLocaleString("en") : three(value / size)} ${name}`;
};
