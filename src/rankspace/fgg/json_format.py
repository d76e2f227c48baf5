def load_json(path): raise NotImplementedError
def save_json(fgg, path): raise NotImplementedError
