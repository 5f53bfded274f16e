// Lists the routes of openapi.json.

const { paths } = await (await fetch("/openapi.json")).json();
const text = (tag, content) => Object.assign(document.createElement(tag), { textContent: content });

for (const [path, methods] of Object.entries(paths)) {
  for (const [method, route] of Object.entries(methods)) {
    const article = document.createElement("article");
    article.append(text("b", method.toUpperCase()), text("code", path), text("p", route.description ?? route.summary));
    for (const { name, in: place, schema, description } of route.parameters ?? []) {
      const note = [place, schema?.type, schema?.default !== undefined && `default ${schema.default}`, description];
      const line = document.createElement("p");
      line.append(text("code", name), ` ${note.filter(Boolean).join(", ")}`);
      article.append(line);
    }
    if (route.requestBody) article.append(text("p", `body: ${Object.keys(route.requestBody.content).join(", ")}`));
    article.append(text("p", `answers: ${Object.keys(route.responses).join(", ")}`));
    document.getElementById("routes").append(article);
  }
}
